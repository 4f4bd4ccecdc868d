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
using NamedSentences = std::vector<std::pair<std::string, std::string>>;
struct CommandText {
  std::string name, sentence;
  NamedSentences flags{};               // its own: "-n,--ranks"
  std::vector<CommandText> commands{};  // below it
  bool takes_options = false;           // a recipe and any option of the tables
};
struct ProgramText {
  std::string name = "redline", sentence, version;
  std::vector<CommandText> commands{};
  NamedSentences flags{}, exit_codes{};
};

std::string options_markdown(const std::vector<JobKind>& kinds);
std::string options_json_schema(const std::vector<JobKind>& kinds);  // draft 2020-12
std::string man_page(const std::vector<JobKind>& kinds, const ProgramText& program);
std::string bash_completion(const std::vector<JobKind>& kinds, const ProgramText& program);
std::string zsh_completion(const std::vector<JobKind>& kinds, const ProgramText& program);
std::string fish_completion(const std::vector<JobKind>& kinds, const ProgramText& program);

// A switch the tuner may move.
struct SearchDimension {
  std::string path, name;  // name: the last word of the path
  Effect effect = Effect::Nothing;
  std::string rule;                // of doctor/rules that finds its candidates; empty: each of `values` is tried
  std::vector<std::string> tried;  // the row's values, its choices, or false and true; a rule may do without
  std::string value;               // what the job has
};

// Every tunable row of the job, in the order of the schema.
std::vector<SearchDimension> search_space(const Resolved& resolved);
// The same from a record's config.resolved.yaml: `tree` has the values, the schema the rows.
std::vector<SearchDimension> search_space(const Schema& schema, const Node& tree);

}  // namespace redline::config
