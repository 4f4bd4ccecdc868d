// redline launch -n N -- train CONFIG ...: several ranks of one job on this machine.
#include <fmt/format.h>

#include "app/command.h"
#include "core/error.h"
#include "core/strings.h"
#include "train/launch.h"

namespace redline::app {

void add_launch_command(CLI::App& program, const Globals& globals);

namespace {

constexpr double kMostGraceSeconds = 86400;

struct LaunchArguments {
  int ranks = 0;
  double grace_seconds = 20;
  std::vector<std::string> words;
};

void run_launch(const LaunchArguments& arguments) {
  const std::vector<std::string>& words = arguments.words;
  if (words.empty() || words[0] != "train")
    throw ConfigError(
        (words.empty() ? "What should the ranks run?" : "Ranks run 'train', not '" + printable(words[0]) + "'.") +
        std::string(" E.g. redline launch -n 2 -- train recipe.yaml"));
  if (!(arguments.grace_seconds >= 0) || arguments.grace_seconds > kMostGraceSeconds)
    throw ConfigError(
        fmt::format("--grace is {}; expected seconds from 0 to {}.", arguments.grace_seconds, kMostGraceSeconds));
  throw ExitWith{train::launch_ranks(arguments.ranks, words, arguments.grace_seconds)};
}

}  // namespace

void add_launch_command(CLI::App& program, const Globals&) {
  auto arguments = std::make_shared<LaunchArguments>();
  CLI::App* command =
      program.add_subcommand("launch", "Train with several ranks on this machine: launch -n 2 -- train CONFIG");
  command->add_option("-n,--ranks", arguments->ranks, "How many ranks")->required()->check(CLI::Range(1, 1024));
  command->add_option("--grace", arguments->grace_seconds,
                      "Seconds that the others have to end by themselves when one is lost");
  command->add_option("words", arguments->words, "What each rank runs, after --: train CONFIG ...");
  command->callback([arguments] { run_launch(*arguments); });
}

}  // namespace redline::app
