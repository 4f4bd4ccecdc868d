// redline compile CONFIG: makes the compiled steps of a job before it runs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "core/error.h"
#include "device/machine.h"
#include "models/register.h"
#include "train/training_run.h"

namespace redline::app {

void add_compile_command(CLI::App& program, const Globals& globals);

namespace {

struct CompileArguments {
  ConfigArguments config;
  int64_t steps = 32;
};

void run_compile_command(const CompileArguments& arguments, const CLI::App& command, const Globals& globals) {
  task::Registry registry;
  models::register_all(registry);
  const auto job = train::Job::read(registry, arguments.config.source(command), device::read_machine_facts());
  const train::CompiledAhead done = train::compile_ahead(*job, arguments.steps);
  if (globals.json)
    fmt::print("{}\n",
               json_text(nlohmann::json{{"schema_version", 1}, {"packages", done.packages}, {"lines", done.lines}}, 1));
  else
    for (const std::string& line : done.lines) fmt::print("{}\n", line);
  if (done.packages == 0) throw DeviceError("No step was compiled.");
}

}  // namespace

void add_compile_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<CompileArguments>();
  CLI::App* command = program.add_subcommand(
      "compile", "Compile the training step of a job ahead, and say what it gains; later runs find it in the cache");
  add_config_arguments(*command, arguments->config);
  command->add_option("--steps", arguments->steps, "Steps of the job to look for shapes in")
      ->check(CLI::PositiveNumber);
  command->callback([arguments, command, &globals] { run_compile_command(*arguments, *command, globals); });
}

}  // namespace redline::app
