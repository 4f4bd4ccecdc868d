// redline eval RUN: validation metrics of a run's checkpoint.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "app/run_names.h"
#include "core/error.h"
#include "core/strings.h"
#include "device/machine.h"
#include "models/register.h"
#include "train/evaluate.h"
#include "train/training_run.h"
#include "train/weights.h"

namespace redline::app {

void add_eval_command(CLI::App& program, const Globals& globals);

namespace {

struct EvalArguments {
  std::string run, checkpoint = "last";
};

void run_eval(const EvalArguments& arguments, const CLI::App& command, const Globals& globals) {
  task::Registry registry;
  models::register_all(registry);
  const std::filesystem::path run = find_run(arguments.run);
  const auto job = train::read_run_job(registry, run, command.remaining(), device::read_machine_facts());
  train::prepare_process(*job);
  const auto task = job->build_task();
  const train::ChosenWeights weights = train::choose_weights(run, arguments.checkpoint, job->exp_manager());
  train::load_chosen(weights, *task);
  const train::ValidationResult result = train::evaluate(*job, *task, weights);
  if (globals.json) {
    nlohmann::json json = {{"schema_version", 1},
                           {"checkpoint", weights.path.string()},
                           {"step", weights.step},
                           {"samples", result.samples},
                           {"metrics", result.metrics}};
    fmt::print("{}\n", json_text(json, 1));
    return;
  }
  fmt::print("{} (step {}), {} samples\n", printable(weights.path.string()), weights.step, result.samples);
  for (const auto& [name, value] : result.metrics) fmt::print("  {:<32} {:.6g}\n", name, value);
}

}  // namespace

void add_eval_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<EvalArguments>();
  CLI::App* command =
      program.add_subcommand("eval", "Evaluate a run's checkpoint on its test_ds, or else its validation_ds");
  command->add_option("run", arguments->run, "The run directory, or its name in runs/; words after it are overrides")
      ->required();
  command->add_option("--checkpoint", arguments->checkpoint,
                      "last, best, a step, or the path of a checkpoint or .safetensors file");
  command->allow_extras();
  command->callback([arguments, command, &globals] { run_eval(*arguments, *command, globals); });
}

}  // namespace redline::app
