// redline lr CONFIG: a learning-rate range test on the job itself.
#include <fmt/format.h>

#include <cmath>

#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "core/error.h"
#include "core/log.h"
#include "core/own_folder.h"
#include "core/strings.h"
#include "device/machine.h"
#include "measure/run_record.h"
#include "models/register.h"
#include "train/lr_range.h"
#include "train/signals.h"
#include "train/training_run.h"

namespace redline::app {

void add_lr_command(CLI::App& program, const Globals& globals);

namespace {

struct LrArguments {
  ConfigArguments config;
  double from = 1e-7, to = 1.0;
  int steps = 100;
};

// The job with its schedule replaced, and nothing written but the record that is read here.
config::RequestSource sweep_source(config::RequestSource source, const LrArguments& arguments,
                                   const std::filesystem::path& run) {
  for (const std::string& word :
       {std::string("~model.optim.sched"), std::string("model.optim.sched.name=sweep"),
        fmt::format("model.optim.sched.min_lr={}", arguments.from),
        fmt::format("model.optim.sched.max_steps={}", arguments.steps), fmt::format("model.optim.lr={}", arguments.to),
        std::string("model.optim.scale_lr=none"), fmt::format("trainer.max_steps={}", arguments.steps),
        std::string("trainer.max_epochs=-1"), std::string("trainer.limit_val_batches=0"),
        std::string("exp_manager.create_checkpoint_callback=false"),
        std::string("exp_manager.create_early_stopping_callback=false"),
        std::string("exp_manager.create_tensorboard_logger=false"), std::string("exp_manager.create_csv_logger=false"),
        std::string("exp_manager.resume=none"), fmt::format("exp_manager.run_dir={}", run.string())})
    source.overrides.push_back(word);
  return source;
}

train::LrRange sweep(const LrArguments& arguments, const CLI::App& command) {
  if (!(arguments.from > 0 && arguments.to > arguments.from))
    throw ConfigError("--from must be above 0 and below --to.");
  task::Registry registry;
  models::register_all(registry);
  const train::SignalScope signals;
  const OwnFolder folder = OwnFolder::temporary("lr");
  const auto job =
      train::Job::read(registry, sweep_source(arguments.config.source(command), arguments, folder.path() / "run"),
                       device::read_machine_facts());
  try {
    train::run_training(*job, {});
  } catch (const DivergedError& error) {
    log_info(fmt::format("Training broke, which is what this looks for: {}", error.what()));
  }
  std::vector<train::LrPoint> points;
  for (const measure::StepRow& row : measure::read_run(folder.path() / "run").steps)
    points.push_back({row.learning_rate, row.loss, 0});
  return train::judge_lr_range(std::move(points));
}

void print_range(const train::LrRange& range) {
  // A line for each of at most twenty rates: the smoothed loss as a bar between its lowest and its first.
  double low = INFINITY, high = -INFINITY;
  for (const train::LrPoint& point : range.points)
    low = std::min(low, point.smoothed), high = std::max(high, point.smoothed);
  const size_t every = std::max<size_t>(1, range.points.size() / 20);
  for (size_t i = 0; i < range.points.size(); i += every) {
    const train::LrPoint& point = range.points[i];
    const double share = high > low ? (point.smoothed - low) / (high - low) : 0;
    fmt::print("{:>9.2e}  {:>10.5g}  {}\n", point.lr, point.smoothed,
               std::string(static_cast<size_t>(40 * share), '#'));
  }
  fmt::print("{}\n", range.sentence);
}

}  // namespace

void add_lr_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<LrArguments>();
  CLI::App* command = program.add_subcommand(
      "lr", "Find a learning rate: train with a rate that rises from step to step, and see where the loss falls");
  add_config_arguments(*command, arguments->config);
  command->add_option("--from", arguments->from, "The lowest rate");
  command->add_option("--to", arguments->to, "The highest rate");
  command->add_option("--steps", arguments->steps, "How many optimiser steps")->check(CLI::Range(20, 1000000));
  command->callback([arguments, command, &globals] {
    const train::LrRange range = sweep(*arguments, *command);
    if (!globals.json) return print_range(range);
    nlohmann::json answer = {{"schema_version", 1}, {"sentence", range.sentence}, {"points", nlohmann::json::array()}};
    for (const auto& [name, value] :
         {std::pair{"steepest", range.steepest}, std::pair{"lowest", range.lowest}, std::pair{"broke", range.broke}})
      if (value) answer[name] = *value;
    for (const train::LrPoint& point : range.points)
      answer["points"].push_back({{"lr", point.lr}, {"loss", point.loss}, {"smoothed", point.smoothed}});
    fmt::print("{}\n", json_text(answer, 1));
  });
}

}  // namespace redline::app
