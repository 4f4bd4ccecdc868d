#include "config/request/overrides.h"

#include <gtest/gtest.h>

#include "config/testing/example_job.h"
#include "config/testing/test_files.h"
#include "config/yaml_writer.h"

namespace redline::config {
namespace {

using testing::config_error;
using Words = std::vector<std::string>;

// Each override as "path=value" or "~path", so that a case is one line.
std::vector<std::string> parsed(const Words& words) {
  example::Job job;
  const SchemaIndex index(job.schema);
  std::vector<std::string> out;
  for (const Override& one : parse_overrides(words, index, {})) {
    out.push_back((one.remove ? "~" : "") + one.path + (one.rest.empty() ? "" : "." + one.rest) +
                  (one.value ? "=" + write_yaml_flow(*one.value) : ""));
  }
  return out;
}
std::string parsing_error(const Words& words) {
  return config_error([&] { parsed(words); });
}

TEST(Overrides, EverySpelling) {
  struct Case {
    Words words, expected;
  };
  const std::vector<Case> cases = {
      {{"trainer.precision=16-mixed"}, {"trainer.precision=16-mixed"}},
      {{"--trainer.precision", "16-mixed"}, {"trainer.precision=16-mixed"}},
      {{"--trainer.precision=16-mixed"}, {"trainer.precision=16-mixed"}},
      {{"+trainer.max_steps=5", "++seed=3"}, {"trainer.max_steps=5", "seed=3"}},
      {{"~model.validation_ds", "~seed=3"}, {"~model.validation_ds", "~seed=3"}},
      {{"--pin_memory", "--num_workers", "8"}, {"model.train_ds.pin_memory=true", "model.train_ds.num_workers=8"}},
      {{"--pin_memory", "seed=1"}, {"model.train_ds.pin_memory=true", "seed=1"}},
      {{"--pin_memory=false"}, {"model.train_ds.pin_memory=false"}},
      {{"--no-pin_memory"}, {"model.train_ds.pin_memory=false"}},
      {{"--no-pin-memory"}, {"model.train_ds.pin_memory=false"}},
      {{"--no-trainer.enable_progress_bar"}, {"trainer.enable_progress_bar=false"}},
      {{"--use_amp", "--num_workers", "24"}, {"use_amp=true", "model.train_ds.num_workers=24"}},
      {{"--no-use_amp"}, {"use_amp=false"}},
      {{"--batch_size", "4", "--precision", "16-mixed", "--max_sequence_length=64"},
       {"model.train_ds.batch_size=4", "trainer.precision=16-mixed", "model.train_ds.max_sequence_length=64"}},
      {{"--trainer.devices", "-1"}, {"trainer.devices=-1"}},
      {{"--options", "runner.max_iters=100", "seed=2", "--use_amp"},
       {"runner.max_iters=100", "seed=2", "use_amp=true"}},
      {{"--cfg-options=runner.max_iters=100"}, {"runner.max_iters=100"}},
      {{"--work-dir", "/tmp/x y"}, {"work-dir=\"/tmp/x y\""}},
      {{"model.optim.betas=[0.9, 0.98]"}, {"model.optim.betas=[0.9, 0.98]"}},
      {{"model.optim.betas.1=0.98"}, {"model.optim.betas.1=0.98"}},
      {{"model.extra.deep.key=1"}, {"model.extra.deep.key=1"}},
      {{"model.extra={a: 1, b: [x]}"}, {"model.extra={a: 1, b: [x]}"}},
      {{"name='7'", "name=\"a b\"", "name=", "name=a=b", "name=a: b"},
       {"name=\"7\"", "name=\"a b\"", "name=\"\"", "name=a=b", "name=\"a: b\""}},
      {{"exp_manager.exp_dir=null", "exp_manager.exp_dir=~"}, {"exp_manager.exp_dir=null", "exp_manager.exp_dir=null"}},
      {{}, {}},
  };
  for (const Case& c : cases) EXPECT_EQ(parsed(c.words), c.expected) << (c.words.empty() ? "" : c.words[0]);
}

struct Disguised {
  std::string kind = "none";
  int other = 0;
  static Table<Disguised> fields() {
    Table<Disguised> t;
    t.add("kind", &Disguised::kind, "A word.").alias(".use_kind", [](const Node& value) {
      return Node::scalar(value.as_bool() ? "some" : value.text());
    });
    t.add("other", &Disguised::other, "A number.");
    return t;
  }
};

// An alias with a conversion that nobody declared boolean: it stands alone in front of a flag, an override and at the
// end.
TEST(Overrides, AnAliasWithAConversionMayStandAlone) {
  const auto kind_and_other = [](const Words& words) {
    Disguised one;
    Schema schema;
    schema.section("x", one);
    RequestSource source;
    source.overrides = words;
    bind(read_request(source, schema), schema);
    return one.kind + " " + std::to_string(one.other);
  };
  EXPECT_EQ(kind_and_other({"--use_kind"}), "some 0");
  EXPECT_EQ(kind_and_other({"--use_kind", "--other", "3"}), "some 3");
  EXPECT_EQ(kind_and_other({"--use_kind", "x.other=3"}), "some 3");
  EXPECT_EQ(kind_and_other({"--use_kind", "~x.other"}), "some 0");
  EXPECT_EQ(kind_and_other({"--use_kind", "much"}), "much 0");
  EXPECT_EQ(kind_and_other({"--use_kind", "a=b"}), "a=b 0");
}

TEST(Overrides, OriginsAreWhatWasTyped) {
  example::Job job;
  const SchemaIndex index(job.schema);
  const auto found = parse_overrides({"--batch_size", "4", "seed=1"}, index, {});
  EXPECT_EQ(found[0].value->origin.text(), "flag --batch_size 4");
  EXPECT_EQ(found[1].value->origin.text(), "flag seed=1");
  const auto tuned = parse_overrides({"batch_size=4"}, index, {OriginKind::Tuned, "card.json", {}});
  EXPECT_EQ(tuned[0].value->origin.text(), "tuned by card.json");
}

TEST(Overrides, Errors) {
  EXPECT_EQ(parsing_error({"--batch_size"}),
            "flag --batch_size: the flag needs a value, an integer of at least 1, or auto; write --batch_size=VALUE.");
  EXPECT_EQ(parsing_error({"--batch_size", "--seed", "1"}).substr(0, 44),
            "flag --batch_size: the flag needs a value, a");
  EXPECT_EQ(parsing_error({"--bacth_size", "4"}),
            "flag --bacth_size: 'bacth_size' is not an option; did you mean 'model.train_ds.batch_size'?");
  EXPECT_EQ(parsing_error({"stray"}),
            "flag stray: 'stray' is neither key=value nor a flag; if it is a value, write it behind its flag's '='.");
  EXPECT_EQ(parsing_error({"--pin_memory", "false"}),
            "flag false: 'false' is neither key=value nor a flag; if it is a value, write it behind its flag's '='.");
  EXPECT_EQ(parsing_error({"--no-precision"}),
            "flag --no-precision: trainer.precision is not a switch that is on or off; give it a value, as in "
            "trainer.precision=VALUE.");
  EXPECT_EQ(parsing_error({"--"}), "flag --: a flag has a name, as in --trainer.precision 16-mixed.");
  EXPECT_NE(parsing_error({"=3"}), "no error");
  EXPECT_NE(parsing_error({"~"}), "no error");
  EXPECT_NE(parsing_error({"+=3"}), "no error");
  EXPECT_NE(parsing_error({"-x"}), "no error");
  EXPECT_NE(parsing_error({""}), "no error");
  EXPECT_NE(parsing_error({"name=[1"}).find("check the brackets"), std::string::npos);
  EXPECT_NE(parsing_error({"name=\xff"}).find("not UTF-8"), std::string::npos);
  EXPECT_EQ(parsing_error({"name\x1b[2J=1"}),
            "flag name\\x1b[2J=1: 'name\\x1b[2J' is not an option; run 'redline options' for the list.");
}

}  // namespace
}  // namespace redline::config
