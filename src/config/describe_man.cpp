// The man page in roff, written from the same tables as everything else.
#include <algorithm>

#include "config/describe.h"
#include "config/yaml_writer.h"
#include "core/strings.h"

namespace redline::config {

namespace {

// Text that roff prints as it is: no requests at the start of a line, no escapes, hyphens that can be copied.
std::string roff(std::string_view plain) {
  std::string out;
  for (size_t i = 0; i < plain.size(); ++i) {
    const char c = plain[i];
    if ((c == '.' || c == '\'') && (i == 0 || plain[i - 1] == '\n')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string quoted_argument(std::string_view plain) {
  std::string out = "\"";
  for (char c : roff(plain)) out += c == '"' ? "\\(dq" : std::string(1, c);
  return out + "\"";
}

// A title is one line: "redline 0.1".
std::string title_text(const ProgramText& program) {
  const std::string version = program.version.substr(0, program.version.find('\n'));
  return starts_with(version, program.name) ? version : program.name + " " + version;
}

std::string tagged(std::string_view name, std::string_view sentence) {
  return ".TP\n.B " + roff(name) + "\n" + roff(sentence.empty() ? " " : sentence) + "\n";
}

// A command's own flags below its sentence, indented once more for one below another.
std::string command_entry(const CommandText& command) {
  std::string out = tagged(command.name, command.sentence);
  if (command.flags.empty() && command.commands.empty()) return out;
  out += ".RS\n";
  for (const auto& [name, sentence] : command.flags) out += tagged(name, sentence);
  for (const CommandText& below : command.commands) out += command_entry(below);
  return out + ".RE\n";
}

std::string pairs(const char* heading, const std::vector<std::pair<std::string, std::string>>& list) {
  if (list.empty()) return "";
  std::string out = std::string(".SH ") + heading + "\n";
  for (const auto& [name, sentence] : list) out += tagged(name, sentence);
  return out;
}

std::string option_entry(const OptionDescription& option) {
  const Row& row = *option.row;
  std::string out = ".TP\n.BI " + quoted_argument("--" + option.path) + " " +
                    quoted_argument(ends_with(row.type, "bool") ? "" : " " + row.type) + "\n";
  out += roff(row.sentence) + "\n";
  std::string facts = "Default: " + write_yaml_flow(option.default_value) + ".";
  if (const std::string limits = limits_text(row); !limits.empty()) facts += " Allowed: " + limits + ".";
  if (row.is_switch)
    facts += std::string(" Changes ") + effect_name(row.effect) + (row.tunable ? "; may be tuned." : ".");
  std::vector<std::string> names;
  if (!option.bare.empty() && option.bare != option.path) names.push_back("--" + option.bare);
  for (const auto& [path, alias] : option.aliases) names.push_back("--" + path);
  if (!names.empty()) facts += " Also " + join(names, ", ") + ".";
  return out + roff(facts) + "\n";
}

}  // namespace

std::string man_page(const std::vector<JobKind>& kinds, const ProgramText& program) {
  std::string upper = program.name;
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  std::string out = ".TH " + quoted_argument(upper) + " 1 \"\" " + quoted_argument(title_text(program)) + "\n";
  out += ".SH NAME\n" + roff(program.name) + " \\- " + roff(program.sentence) + "\n";
  out += ".SH SYNOPSIS\n.B " + roff(program.name) +
         "\n.I command\n[\n.I recipe\n] [\n.IR key = value\n] [\n.BI \\-\\- key \" value\"\n]\n";
  if (!program.commands.empty()) out += ".SH COMMANDS\n";
  for (const CommandText& command : program.commands) out += command_entry(command);
  out += pairs("FLAGS", program.flags);
  out +=
      ".SH OPTIONS\nEvery option is a key of a recipe, a flag and an override: \\-\\-trainer.precision 16\\-mixed and "
      "trainer.precision=16\\-mixed\n"
      "are the same. A boolean flag takes no word; \\-\\-no\\-name turns it off. ~key removes a key of the recipe.\n";
  std::vector<std::string> seen;
  for (const JobKind& kind : kinds) {
    for (const SectionDescription& section : describe_sections(*kind.schema)) {
      std::string text;
      for (const OptionDescription& option : section.options) text += option_entry(option);
      const std::string title = section.path.empty() ? "top of the file" : section.path;
      const std::string whole = title + text;
      if (text.empty() || std::find(seen.begin(), seen.end(), whole) != seen.end()) continue;
      seen.push_back(whole);
      out += ".SS " + quoted_argument(title) + "\n" + text;
    }
  }
  return out + pairs("EXIT STATUS", program.exit_codes);
}

}  // namespace redline::config
