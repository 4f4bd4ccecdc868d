// redline train CONFIG [overrides]: trains a job, or with --dry-run shows that it would.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "app/tune_arguments.h"
#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "core/log_prefix.h"
#include "core/strings.h"
#include "device/machine.h"
#include "device/profile.h"
#include "models/register.h"
#include "train/signals.h"
#include "train/training_run.h"

namespace redline::app {

void add_train_command(CLI::App& program, const Globals& globals);

namespace {

struct TrainArguments {
  ConfigArguments config;
  bool dry_run = false, print_config = false, start_afresh = false;
  std::string trace;
  std::string tune_budget;  // empty: train as asked
  TuneArguments tune;
};

nlohmann::json summary_json(const train::RunSummary& summary) {
  nlohmann::json json = {
      {"schema_version", 1},
      {"run_directory", summary.directory.string()},
      {"steps", summary.fit.steps},
      {"epochs", summary.fit.epochs},
      {"started_at_step", summary.started_at_step},
      {"stop", summary.fit.early_stop.empty() ? train::stop_reason_text(summary.fit.stop) : "early_stopping"},
      {"loss", summary.fit.last_loss},
      {"validation", nlohmann::json::object()}};
  for (const auto& [name, value] : summary.fit.last_validation) json["validation"][name] = value;
  return json;
}

tune::TuneResult tune_first(const task::Registry& registry, const config::RequestSource& source,
                            const TrainArguments& arguments) {
  TuneArguments options = arguments.tune;
  options.budget = arguments.tune_budget;
  const train::SignalScope signals;
  tune::TuneResult result = tune::tune_job(make_tune_request(registry, source, options));
  log_info(tune_summary(result));
  if (train::StopFlag::requested()) throw PreemptedError("Stopped while tuning; nothing was trained.");
  return result;
}

constexpr double kGraceSeconds = 20;

// What this process was started with, less its name.
std::vector<std::string> own_words() {
  std::vector<std::string> words = split(read_file("/proc/self/cmdline", size_t{16} << 20), '\0');
  if (!words.empty() && words.back().empty()) words.pop_back();
  words.erase(words.begin());
  return words;
}

// What all ranks would say at the start, rank 0 says.
void speak_as_rank(int rank, const Globals& globals) {
  set_log_prefix(fmt::format("[rank {}] ", rank));
  if (globals.verbose == 0) set_log_level(LogLevel::Error);
}

void run_train(const TrainArguments& arguments, const CLI::App& command, const Globals& globals) {
  // From the first moment on: a scheduler that takes its machine back while a job starts gets the same answer as later.
  std::optional<train::SignalScope> signals;
  if (!arguments.print_config && !arguments.dry_run) signals.emplace();
  task::Registry registry;
  models::register_all(registry);
  MachineFacts machine = device::read_machine_facts();
  const train::Launch launch = train::read_launch();
  machine.ranks = launch.ranks;
  if (!machine.ranks.writes()) speak_as_rank(machine.ranks.rank, globals);
  device::load_profile(machine);  // for the record and flops_share; what runs does not depend on it
  config::RequestSource source = arguments.config.source(command);
  std::optional<tune::TuneResult> tuned;
  if (!arguments.tune_budget.empty()) {
    if (!launch.by.empty())
      throw ConfigError(
          "--tune measures in one process: tune first (redline tune), then train the tuned recipe with several ranks.");
    tuned = tune_first(registry, source, arguments);
    source = tuned_source(std::move(source), *tuned);
  }
  const auto job = train::Job::read(registry, source, machine);
  if ((arguments.print_config || arguments.dry_run) && !machine.ranks.writes()) return;  // rank 0 answers for all
  if (arguments.print_config) {
    fmt::print("{}", globals.json ? job->resolved().dump_json() : job->resolved().dump_yaml());
    return;
  }
  if (arguments.dry_run) {
    const std::vector<std::string> lines = train::dry_run(*job);
    if (globals.json)
      fmt::print("{}\n", json_text(nlohmann::json{{"schema_version", 1}, {"lines", lines}}, 1));
    else
      for (const std::string& line : lines) fmt::print("{}\n", printable(line));
    return;
  }
  if (const int ranks = train::ranks_to_start(*job, launch); ranks > 1) {
    if (tuned)
      throw ConfigError(
          "--tune measures in one process: tune first (redline tune), then train the tuned recipe with several ranks.");
    log_info(fmt::format("trainer.devices {}: starting {} ranks.", job->trainer().devices.value(), ranks));
    throw ExitWith{train::launch_ranks(ranks, own_words(), kGraceSeconds)};
  }
  train::stop_before_start();
  train::RunOptions options;
  options.start_afresh = arguments.start_afresh;
  options.launch = launch;
  if (!arguments.trace.empty()) options.trace = measure::parse_step_range(arguments.trace);
  const train::RunSummary summary = train::run_training(*job, options);
  // Beside the record, so that `redline report` shows what tuning found.
  if (tuned) write_file_atomic(summary.directory / "tune_card.json", measure::tune_card_to_json(tuned->card));
  if (globals.json && machine.ranks.writes()) fmt::print("{}\n", json_text(summary_json(summary), 1));
}

}  // namespace

void add_train_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = program.add_subcommand("train", "Train a job; the same command continues a run that was stopped");
  add_config_arguments(*command, arguments->config);
  command->add_flag("--dry-run", arguments->dry_run,
                    "Resolve, open the data, run one step, estimate memory; write nothing");
  command->add_flag("--print-config,--print_config", arguments->print_config,
                    "Print the resolved config with the origin of every value, and stop");
  command->add_flag("--start-afresh", arguments->start_afresh,
                    "When none of the run's checkpoints can be used: begin at step 0 and keep them under another name");
  command->add_option("--tune", arguments->tune_budget,
                      "Tune for this long first (or use the tune card of an earlier call) and train with the result");
  command->add_option("--allow", arguments->tune.allow, "With --tune: numerics, order, optimisation");
  command->add_option("--memory", arguments->tune.memory, "With --tune: most tensor memory, e.g. 8GiB");
  command->add_option("--trace", arguments->trace, "Write a Chrome/Perfetto trace of some steps: steps=10..20");
  command->footer(
      "Of the job, as every option of `redline options`:\n"
      "  --run-dir DIR               Where the run goes; without it runs/NAME/DATE, where an unfinished run of the "
      "same job\n"
      "                              is continued\n"
      "  --new-run                   Another run instead of the unfinished one\n"
      "  --resume auto|last|best|STEP|none|PATH [auto]\n"
      "                              From which checkpoint\n"
      "  --load_from FILE            Weights to start from: .safetensors, a run, .nemo, .pt, .ckpt\n"
      "  --batch_size N, --seed N, --num_workers N, trainer.max_steps=N, trainer.precision=bf16-mixed, ...");
  command->callback([arguments, command, &globals] { run_train(*arguments, *command, globals); });
}

}  // namespace redline::app
