// The words of the command line: `redline help X`, and what is said of words that cannot be parsed: what was meant, how
// the command is written, where to read more.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/command.h"
#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"

namespace redline::app {

namespace {

// The command that the words name, as far as they name one, and what it might have been where one does not.
struct NamedCommand {
  const CLI::App* command;
  std::string name, wrong, meant;
};

NamedCommand named_command(const CLI::App& program, const std::vector<std::string>& words) {
  NamedCommand found{&program, program.get_name(), "", ""};
  for (const std::string& word : words) {
    if (word.starts_with("-")) continue;
    const auto below = found.command->get_subcommands([](const CLI::App* /*any*/) { return true; });
    if (below.empty()) break;
    std::vector<std::string> names;
    for (const CLI::App* command : below) names.push_back(command->get_name());
    if (const auto at = std::find(names.begin(), names.end(), word); at != names.end()) {
      found = {below[static_cast<size_t>(at - names.begin())], found.name + " " + word, "", ""};
    } else if (const auto near = did_you_mean(word, names); near && found.meant.empty()) {
      found.wrong = word;
      found.meant = *near;
    }
  }
  return found;
}

std::string usage_line(const NamedCommand& found) {
  const auto formatter = std::dynamic_pointer_cast<CLI::Formatter>(found.command->get_formatter());
  if (!formatter || found.command->get_parent() == nullptr) return "";
  return std::string(trim(formatter->make_usage(found.command, found.name))) + "\n";
}

bool wants_json_log(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i] == "--log-format=json" ||
        (words[i] == "--log-format" && i + 1 < words.size() && words[i + 1] == "json"))
      return true;
  return false;
}

void say(const CLI::App& program, const std::vector<std::string>& words, const std::string& error) {
  const NamedCommand found = named_command(program, words);
  const bool json = wants_json_log(words);
  if (json) set_log_format(LogFormat::Json);
  log_error(found.meant.empty()
                ? error
                : fmt::format("There is no command '{}'; did you mean '{}'?", found.wrong, found.meant));
  if (json) return;
  const bool leaf = found.command->get_parent() != nullptr;
  std::fputs(printable_lines(usage_line(found) + "Run '" + found.name + " --help' for " +
                             (leaf ? "its options and examples.\n" : "the commands and their options.\n"))
                 .c_str(),
             stderr);
}

}  // namespace

int parse_words(CLI::App& program, std::vector<std::string> words) {
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  try {
    std::vector<std::string> last_first(words.rbegin(), words.rend());  // as CLI11 takes them
    program.parse(std::move(last_first));
    if (program.get_subcommands().empty()) std::fputs(program.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);
    say(program, words, error.what());
    return static_cast<int>(ExitCode::Usage);
  }
}

}  // namespace redline::app
