// What a schema offers, as plain lists, for the texts derived from it (docs/options.md, man page, completion) and for
// the tuner.
#pragma once

#include <string>
#include <vector>

#include "config/job.h"

namespace redline::config {

struct OptionDescription {
  std::string path;
  const Row* row = nullptr;
  Node default_value;
  std::vector<std::pair<std::string, const Alias*>> aliases;  // with their whole paths
  std::string bare;                                           // the bare flag that means this row, when there is one
};

// A section or a group: one table of the documentation.
struct SectionDescription {
  std::string path, sentence;
  bool optional = false;
  const Component* component = nullptr;
  std::vector<OptionDescription> options;
};

std::vector<SectionDescription> describe_sections(const Schema& schema);

// "1 to 64", "above 0, in seconds", "32-true, 16-mixed": the limits of a value for a table cell; empty when there are
// none.
std::string limits_text(const Row& row);

// A job's tables under the task they belong to; the texts for several kinds print what they share once.
struct JobKind {
  std::string task;
  const Schema* schema = nullptr;
};

// What the program is, for the man page and completion; filled by app.
struct ProgramText {
  std::string name = "redline", sentence, version;
  std::vector<std::pair<std::string, std::string>> commands, flags, exit_codes;  // name and sentence
};

std::string options_markdown(const std::vector<JobKind>& kinds);
std::string options_json_schema(const std::vector<JobKind>& kinds);  // draft 2020-12
std::string man_page(const std::vector<JobKind>& kinds, const ProgramText& program);
std::string bash_completion(const std::vector<JobKind>& kinds, const ProgramText& program);
std::string zsh_completion(const std::vector<JobKind>& kinds, const ProgramText& program);
std::string fish_completion(const std::vector<JobKind>& kinds, const ProgramText& program);

// A switch the tuner may move.
struct SearchDimension {
  std::string path;
  const Row* row = nullptr;
  Effect effect = Effect::Nothing;
  std::string type;                  // without auto| and null|
  std::vector<std::string> choices;  // also false, true for booleans; empty for numbers
  std::optional<double> min, max;
  bool may_be_auto = false;
  Node value;  // what the object holds now
};

// Every tunable row of the sections that are there, in the order of the schema.
std::vector<SearchDimension> search_space(const Schema& schema);

}  // namespace redline::config
