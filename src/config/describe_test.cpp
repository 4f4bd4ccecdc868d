#include "config/describe.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/testing/example_job.h"
#include "core/error.h"
#include "core/strings.h"

namespace redline::config {
namespace {

bool has(const std::string& text, const std::string& piece) { return text.find(piece) != std::string::npos; }

struct Second {
  example::Root root;
  example::Trainer trainer;
  example::Augment model;
  Schema schema;
  Second() {
    schema.section("", root);
    schema.section("trainer", trainer);
    schema.section("model", model);
  }
};

ProgramText example_program() {
  ProgramText program;
  program.sentence = "makes training fast";
  program.version = "0.1";
  program.commands = {{"train", "Train a model."}};
  program.flags = {{"-q,--quiet", "Say less."}};
  program.exit_codes = {{"2", "Wrong options."}};
  return program;
}

TEST(Describe, SectionsAndGroupsWithDefaults) {
  const example::Job job;
  const auto sections = describe_sections(job.schema);
  std::vector<std::string> paths;
  for (const auto& section : sections) paths.push_back(section.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"", "trainer", "trainer.strategy", "model", "model.encoder",
                                             "model.spec_augment", "model.train_ds", "model.validation_ds",
                                             "model.optim", "model.optim.sched", "exp_manager"}));
  EXPECT_TRUE(sections[5].optional);
  EXPECT_TRUE(sections[7].optional);
  EXPECT_FALSE(sections[1].optional);
  const OptionDescription& width = sections[5].options[1];
  EXPECT_EQ(width.path, "model.spec_augment.time_width");
  EXPECT_EQ(width.default_value.text(), "0.05");
  EXPECT_EQ(sections[6].options[1].bare, "batch_size");
  EXPECT_EQ(sections[7].options[1].bare, "");
}

TEST(Describe, MarkdownHasOneTablePerSection) {
  const example::Job job;
  const std::string text = options_markdown({{"speech_ssl", &job.schema}});
  EXPECT_TRUE(has(text, "### `trainer`\n\nThe training loop.\n\n| name | type | default |"));
  EXPECT_TRUE(has(text,
                  "| `precision` | string | `32-true` | 32-true, 32, 16-mixed, 16, bf16-mixed | numerics | yes | "
                  "`--precision`, `--use_amp` "
                  "(true is 16-mixed) | Arithmetic of forward and backward. |\n"))
      << text;
  EXPECT_TRUE(has(text, "| `devices` | auto\\|int | `auto` | at least -1 | numerics |"));
  EXPECT_TRUE(has(text, "| `save_every_seconds` | number | `600` | above 0; in seconds |"));
  EXPECT_TRUE(has(text, "`runner.max_iters` (counts micro-iterations)"));
  EXPECT_TRUE(has(text, "- `accelerator` is read and has no effect as `cpu`, `auto`: the device is found at start.\n"));
  EXPECT_TRUE(has(text, "Optional: there only when the recipe has it"));
  EXPECT_TRUE(has(text, "A single word in place of the map sets `name`."));
  for (const std::string& line : split(text, '\n')) {
    if (!starts_with(line, "|")) continue;
    size_t bars = 0;
    for (size_t i = 0; i < line.size(); ++i) bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\') ? 1 : 0;
    EXPECT_EQ(bars, 9u) << line;
  }
}

TEST(Describe, MarkdownPrintsSharedTablesOnce) {
  const example::Job job;
  const Second second;
  const std::string text = options_markdown({{"speech_ssl", &job.schema}, {"other", &second.schema}});
  EXPECT_EQ(text.find("### `trainer`"), text.rfind("### `trainer`"));
  EXPECT_LT(text.find("### `trainer`"), text.find("## Task `speech_ssl`"));
  EXPECT_EQ(text.find("### `trainer.strategy`"), text.rfind("### `trainer.strategy`"))
      << "--name is the root's in both";
  EXPECT_LT(text.find("### `trainer.strategy`"), text.find("## Task `speech_ssl`"));
  EXPECT_NE(text.find("### `model`"), text.rfind("### `model`"));
}

TEST(Describe, JsonSchemaHasEveryNameAliasesIncluded) {
  const example::Job job;
  const auto schema = nlohmann::json::parse(options_json_schema({{"speech_ssl", &job.schema}}));
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  const auto& properties = schema["properties"];
  for (const char* key : {"name", "trainer", "model", "exp_manager", "use_amp", "runner", "optimizer_config",
                          "work-dir", "base", "presets"}) {
    EXPECT_TRUE(properties.contains(key)) << key;
  }
  EXPECT_EQ(schema["additionalProperties"], false);
  const auto& trainer = properties["trainer"]["anyOf"][0]["properties"];
  EXPECT_EQ(trainer["max_steps"]["anyOf"][0], nlohmann::json::parse(R"({"type": "integer", "minimum": -1})"));
  EXPECT_EQ(trainer["accelerator"]["description"], "Has no effect: the device is found at start.");
}

TEST(Describe, ManPageEscapesWhatRoffWouldTake) {
  const example::Job job;
  const std::string page = man_page({{"speech_ssl", &job.schema}}, example_program());
  EXPECT_TRUE(starts_with(page, ".TH \"REDLINE\" 1 \"\" \"redline 0.1\"\n.SH NAME\nredline \\- makes training fast\n"));
  EXPECT_TRUE(has(page, ".BI \"\\-\\-trainer.precision\" \" string\"\nArithmetic of forward and backward.\n"));
  EXPECT_TRUE(has(page, "Changes numerics; may be tuned. Also \\-\\-precision, \\-\\-use_amp."));
  EXPECT_TRUE(has(page, ".SH EXIT STATUS\n.TP\n.B 2\nWrong options.\n"));
  for (const std::string& line : split(page, '\n')) {
    if (!starts_with(line, ".")) continue;
    const std::string request = line.substr(0, line.find(' '));
    EXPECT_TRUE(request == ".TH" || request == ".SH" || request == ".SS" || request == ".TP" || request == ".B" ||
                request == ".BI" || request == ".I" || request == ".IR")
        << line;
  }
}

TEST(Describe, CompletionsKnowFlagsAndWords) {
  const example::Job job;
  const std::vector<JobKind> kinds = {{"speech_ssl", &job.schema}};
  const std::string fish = fish_completion(kinds, example_program());
  EXPECT_TRUE(has(fish, "complete -c redline -n __fish_use_subcommand -f -a train -d 'Train a model.'\n"));
  EXPECT_TRUE(has(fish, "complete -c redline -s q -l quiet -d 'Say less.'\n"));
  EXPECT_TRUE(has(fish, "complete -c redline -l trainer.precision -x -a '32-true 32 16-mixed 16 bf16-mixed' -d"));
  EXPECT_TRUE(has(fish, "complete -c redline -l pin_memory -d"));
  EXPECT_TRUE(has(fish, "complete -c redline -l no-pin_memory -d"));
  EXPECT_TRUE(has(fish, "complete -c redline -l batch_size -x -a 'auto' -d"));
  EXPECT_TRUE(has(fish, "complete -c redline -l work-dir -r -d"));
  const std::string zsh = zsh_completion(kinds, example_program());
  EXPECT_TRUE(starts_with(zsh, "#compdef redline\n"));
  EXPECT_TRUE(has(zsh, "'--trainer.precision:Arithmetic of forward and backward.'"));
  const std::string bash = bash_completion(kinds, example_program());
  EXPECT_TRUE(has(bash, "complete -o filenames -F _redline redline\n"));
}

TEST(SearchSpace, ComesFromTheRows) {
  example::Job job;
  const Resolved resolved = job.read_words({"trainer.accumulate_grad_batches=4"});
  const auto space = search_space(resolved);
  std::vector<std::string> paths;
  for (const SearchDimension& dimension : space) paths.push_back(dimension.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"trainer.precision", "trainer.accumulate_grad_batches",
                                             "model.train_ds.batch_size", "model.train_ds.num_workers",
                                             "model.train_ds.pin_memory"}));
  EXPECT_EQ(space[0].effect, Effect::Numerics);
  EXPECT_EQ(space[0].tried.size(), 5u);
  EXPECT_EQ(space[1].name, "accumulate_grad_batches");
  EXPECT_EQ(space[1].value, "4");
  EXPECT_EQ(space[1].rule, "accumulation");
  EXPECT_EQ(space[2].tried, (std::vector<std::string>{"2x", "4x"}));
  EXPECT_EQ(space[3].tried, (std::vector<std::string>{"0", "2", "4"}));
  EXPECT_EQ(space[3].rule, "");
  EXPECT_EQ(space[4].tried, (std::vector<std::string>{"false", "true"}));
  // A record has the values and no objects; what it lacks is no dimension.
  const auto recorded =
      search_space(job.schema, read_yaml_text("trainer: {accumulate_grad_batches: 8, precision: 32-true}", "record"));
  ASSERT_EQ(recorded.size(), 2u);
  EXPECT_EQ(recorded[1].value, "8");
}

struct Nameless {
  int depth = 1;
  static Table<Nameless> fields() {
    Table<Nameless> t;
    t.add("depth", &Nameless::depth, "A number that says neither where it may go nor who knows.").tunable();
    return t;
  }
};

TEST(SearchSpace, ATunableRowNamesItsValuesOrItsRule) {
  Nameless object;
  Schema schema;
  schema.section("x", object);
  EXPECT_THROW(search_space(bind(Node::map(), schema)), InternalError);
}

TEST(Resolved, ARowThatARunMayChangeIsNotHashed) {
  example::Job job, other, third;
  const uint64_t plain = job.read_words({"model.train_ds.num_workers=0"}).hash();
  EXPECT_EQ(other.read_words({"model.train_ds.num_workers=2"}).hash(), plain);
  EXPECT_NE(third.read_words({"model.train_ds.batch_size=7"}).hash(), plain);
}

}  // namespace
}  // namespace redline::config
