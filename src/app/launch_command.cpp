// redline launch -n N -- train CONFIG ...: several ranks of one job on this machine.
#include "app/command.h"
#include "core/error.h"
#include "train/launch.h"

namespace redline::app {

void add_launch_command(CLI::App& program, const Globals& globals);

namespace {

struct LaunchArguments {
  int ranks = 0;
  double grace_seconds = 20;
};

void run_launch(const LaunchArguments& arguments, const CLI::App& command) {
  std::vector<std::string> words = command.remaining();
  if (!words.empty() && words[0] == "--") words.erase(words.begin());
  if (words.empty() || words[0] != "train")
    throw ConfigError("What should the ranks run? E.g. redline launch -n 2 -- train recipe.yaml");
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
  command->prefix_command();
  command->callback([arguments, command] { run_launch(*arguments, *command); });
}

}  // namespace redline::app
