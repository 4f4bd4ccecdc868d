// redline chaos CONFIG --kills N: kills the user's own job N times and proves that nothing is lost. Exit code 1 when
// something was.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "core/error.h"
#include "core/log.h"
#include "core/own_folder.h"
#include "core/strings.h"
#include "data/option_names.h"
#include "train/chaos.h"

namespace redline::app {

void add_chaos_command(CLI::App& program, const Globals& globals);

namespace {

struct ChaosArguments {
  ConfigArguments config;
  train::ChaosRequest request;
  std::string work_directory;
  bool keep = false;
};

// The same words as for `redline train`, so that what is proved is what is trained.
std::vector<std::string> train_words(const ChaosArguments& arguments, const CLI::App& command) {
  std::vector<std::string> words = {std::filesystem::read_symlink("/proc/self/exe").string(), "--quiet", "train"};
  const ConfigArguments& config = arguments.config;
  for (const std::string& word : command.remaining()) words.push_back(word);  // the recipe is among them
  if (!config.config_path.empty()) words.insert(words.end(), {"--config-path", config.config_path});
  if (!config.config_name.empty()) words.insert(words.end(), {"--config-name", config.config_name});
  if (!config.preset.empty()) words.insert(words.end(), {"--preset", config.preset});
  for (const std::string& option : config.options) words.insert(words.end(), {"--options", option});
  return words;
}

nlohmann::json chaos_json(const train::ChaosResult& result) {
  return {{"schema_version", 1},
          {"passed", result.passed()},
          {"kills", result.kills},
          {"aimed_kills", result.aimed_kills},
          {"restarts", result.restarts},
          {"completed_runs", result.completed_runs},
          {"states_checked", result.states_checked},
          {"unreadable_states", result.unreadable_states},
          {"steps", result.steps},
          {"epochs", result.epochs},
          {"samples", result.samples},
          {"steps_repeated", result.steps_repeated},
          {"weights_sha256", result.weights_sha256},
          {"upper_bound", result.upper_bound()},
          {"problems", result.problems}};
}

void print_chaos(const train::ChaosResult& result) {
  fmt::print("{} kills ({} aimed at a save), {} restarts, {} runs to the end; {} steps repeated\n", result.kills,
             result.aimed_kills, result.restarts, result.completed_runs, result.steps_repeated);
  if (!result.passed()) {
    for (const std::string& problem : result.problems) fmt::print("PROBLEM  {}\n", printable(problem));
    return;
  }
  fmt::print("losses of {} steps: byte-identical to the undisturbed run\n", result.steps);
  fmt::print("weights and optimiser: identical (model SHA-256 {})\n", result.weights_sha256);
  fmt::print("{} samples in {} epoch(s): each exactly once per epoch\n", result.samples, result.epochs);
  fmt::print("{} states after a kill: 0 unreadable\n", result.states_checked);
  fmt::print("0 losses in {} kills: with 95 % confidence fewer than {:.2g} % of kills lose anything (3/n)\n",
             result.kills, 100 * result.upper_bound());
}

void run_command(const ChaosArguments& arguments, const CLI::App& command, const Globals& globals) {
  train::ChaosRequest request = arguments.request;
  request.command = train_words(arguments, command);
  request.work_directory = !arguments.work_directory.empty()
                               ? std::filesystem::absolute(arguments.work_directory)
                               : std::filesystem::temp_directory_path() / fmt::format("redline-chaos-{}", ::getpid());
  if (std::filesystem::exists(request.work_directory)) {
    throw ConfigError("'" + printable(request.work_directory.string()) + "' exists; choose another --chaos-dir.");
  }
  request.varied = {{fmt::format("model.train_ds.{}", data::kNumWorkers), {"0", "1", "2", "4"}},
                    {"model.train_ds.prefetch_factor", {"1", "2", "4"}}};
  OwnFolder folder = OwnFolder::create(request.work_directory);
  folder.keep();  // what is needed to understand a failure
  const train::ChaosResult result =
      train::run_chaos(request, [](const std::string& line) { log_info("chaos: " + line); });
  if (globals.json) {
    fmt::print("{}\n", json_text(chaos_json(result), 2));
  } else {
    print_chaos(result);
  }
  folder.keep(!result.passed() || arguments.keep);
  if (!result.passed()) {
    throw Error(ExitCode::Failure,
                "The campaign failed; everything is kept in '" + printable(request.work_directory.string()) + "'.");
  }
}

}  // namespace

void add_chaos_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<ChaosArguments>();
  CLI::App* command =
      program.add_subcommand("chaos", "Kill a job again and again and prove that it ends as if nothing had happened");
  add_config_arguments(*command, arguments->config);
  command->add_option("--kills", arguments->request.kills, "How often to kill it")->check(CLI::PositiveNumber);
  command->add_option("--seed-of-kills", arguments->request.seed, "Another seed draws other times and settings");
  command->add_option("--aimed-share", arguments->request.aimed_share, "Share of kills aimed at a save")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--child-timeout", arguments->request.timeout_seconds, "Seconds after which a run counts as hung")
      ->check(CLI::PositiveNumber);
  command->add_option("--chaos-dir", arguments->work_directory,
                      "Where the runs go; a temporary directory when not given");
  command->add_flag("--keep", arguments->keep, "Keep the runs also when nothing was lost");
  command->callback([arguments, command, &globals] { run_command(*arguments, *command, globals); });
}

}  // namespace redline::app
