// redline probe CONFIG --weights W --batch B --steps N --out O: given tensors through a task, for comparison with its
// reference.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "device/machine.h"
#include "models/register.h"
#include "train/probe.h"

namespace redline::app {

void add_probe_command(CLI::App& program, const Globals& globals);

namespace {

struct ProbeArguments {
  ConfigArguments config;
  train::ProbeInput input;
  std::string out;
};

void run_probe_command(const ProbeArguments& arguments, const CLI::App& command, const Globals& globals) {
  task::Registry registry;
  models::register_all(registry);
  train::JobOptions options;
  options.needs_data = false;
  const auto job = train::Job::read(registry, arguments.config.source(command), device::read_machine_facts(), options);
  const train::ProbeResult result = train::run_probe(*job, arguments.input);
  train::NamedTensors tensors(result.tensors.begin(), result.tensors.end());
  train::write_safetensors_atomic(arguments.out, tensors);
  if (globals.json)
    fmt::print("{}\n", json_text(nlohmann::json{{"schema_version", 1},
                                                {"losses", result.losses},
                                                {"tensors", tensors.size()},
                                                {"out", arguments.out}},
                                 1));
  else
    for (size_t i = 0; i < result.losses.size(); ++i) fmt::print("step {}: loss {}\n", i + 1, result.losses[i]);
}

}  // namespace

void add_probe_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<ProbeArguments>();
  CLI::App* command = program.add_subcommand(
      "probe", "Run given weights and a given batch through a task; write losses, outputs and gradients");
  add_config_arguments(*command, arguments->config);
  command
      ->add_option("--weights", arguments->input.weights, "Weights under the reference project's names (.safetensors)")
      ->required();
  command->add_option("--batch", arguments->input.batch, "The batch's tensors (.safetensors)")->required();
  command->add_option("--steps", arguments->input.steps, "Optimiser steps")->check(CLI::PositiveNumber);
  command->add_option("--out", arguments->out, "Where losses, outputs and grad.<parameter> go (.safetensors)")
      ->required();
  command->callback([arguments, command, &globals] { run_probe_command(*arguments, *command, globals); });
}

}  // namespace redline::app
