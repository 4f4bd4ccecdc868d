// The tests' job as a program, so that pytest can hold what is derived from a schema against other tools' judgement:
//   config_example json-schema | json-schema-tasks | markdown | man | bash | zsh | fish
//   config_example dump [--json] FILE [overrides]      exit code 2 and one sentence when the file is refused
#include <cstdio>
#include <string_view>

#include "config/describe.h"
#include "config/testing/example_job.h"

namespace {

using namespace redline::config;

int dump(std::vector<std::string> words) {
  const bool json = !words.empty() && words[0] == "--json";
  if (json) words.erase(words.begin());
  RequestSource source;
  source.file = words.at(0);
  source.overrides.assign(words.begin() + 1, words.end());
  example::Job job;
  try {
    const Resolved resolved = job.read(source);
    std::fputs((json ? resolved.dump_json() : resolved.dump_yaml()).c_str(), stdout);
    return 0;
  } catch (const redline::ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}

// A second task, with a table of its own beside the shared ones.
struct OtherJob {
  example::Root root;
  example::Trainer trainer;
  example::Augment model;
  Schema schema;
  OtherJob() {
    schema.section("", root);
    schema.section("trainer", trainer);
    schema.section("model", model);
  }
};

std::string described(std::string_view what) {
  static const example::Job job;
  static const OtherJob other;
  const std::vector<JobKind> one = {{"speech_ssl", &job.schema}},
                             both = {{"speech_ssl", &job.schema}, {"other", &other.schema}};
  ProgramText program;
  program.name = "redline-example";
  program.sentence = "shows what the tables give";
  program.version = "1.0";
  program.commands = {{"train", "Train a model.", {}, {}, true}, {"tune", "It's faster.", {}, {}, true}};
  program.flags = {{"-q, --quiet", "Say less."}};
  program.exit_codes = {{"2", "The command line or a recipe is wrong."}};
  if (what == "json-schema") return options_json_schema(one);
  if (what == "json-schema-tasks") return options_json_schema(both);
  if (what == "markdown") return options_markdown(both);
  if (what == "man") return man_page(both, program);
  if (what == "bash") return bash_completion(both, program);
  if (what == "zsh") return zsh_completion(both, program);
  if (what == "fish") return fish_completion(both, program);
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() > 1 && words[0] == "dump") return dump({words.begin() + 1, words.end()});
  const std::string text = words.empty() ? "" : described(words[0]);
  std::fputs(text.c_str(), stdout);
  return text.empty() ? 2 : 0;
}
