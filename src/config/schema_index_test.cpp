#include "config/schema_index.h"

#include <gtest/gtest.h>

#include "config/testing/example_job.h"
#include "config/testing/test_files.h"

namespace redline::config {
namespace {

using testing::config_error;

const Origin kTyped{OriginKind::Flag, "--x", 0, 0, "", 0, 0};

TEST(SchemaIndex, FindsRowsGroupsSectionsAliases) {
  example::Job job;
  const SchemaIndex index(job.schema);
  EXPECT_EQ(index.find("trainer.precision")->row->name, "precision");
  EXPECT_EQ(index.find("model.encoder.d_model")->row->name, "d_model");
  EXPECT_TRUE(index.find("model.validation_ds")->is_map());
  EXPECT_EQ(index.find("runner.max_iters")->target->path, "trainer.max_steps");
  EXPECT_EQ(index.find("model.train_ds.workers_per_gpu")->target->path, "model.train_ds.num_workers");
  EXPECT_EQ(index.find("trainer.precison"), nullptr);
  EXPECT_EQ(index.find("model.optim.betas.1"), nullptr);
  std::string rest;
  EXPECT_EQ(index.find("model.optim.betas.1", &rest)->path, "model.optim.betas");
  EXPECT_EQ(rest, "1");
  EXPECT_EQ(index.find("trainer.max_steps.1", &rest), nullptr);
}

TEST(SchemaIndex, BareFlagsMeanOneRow) {
  example::Job job;
  const SchemaIndex index(job.schema);
  struct Case {
    const char *word, *path;
  };
  for (const Case& c : {Case{"batch_size", "model.train_ds.batch_size"},  // the section listed first
                        {"samples_per_gpu", "model.train_ds.samples_per_gpu"},
                        {"num_workers", "model.train_ds.num_workers"},
                        {"sample_rate", "model.sample_rate"},
                        {"precision", "trainer.precision"},
                        {"max_sequence_length", "model.train_ds.max_sequence_length"},
                        {"max-sequence-length", "model.train_ds.max_sequence_length"},
                        {"use_amp", "use_amp"},
                        {"learning_rate", "learning_rate"},
                        {"work-dir", "work-dir"},
                        {"name", "name"},          // the root's own row
                        {"lr", "model.optim.lr"},  // unique
                        {"d_model", "model.encoder.d_model"},
                        {"warmup_steps", "model.optim.sched.warmup_steps"}}) {
    EXPECT_EQ(index.flag(c.word, nullptr, kTyped).path, c.path) << c.word;
  }
  EXPECT_TRUE(index.flag("use_amp", nullptr, kTyped).is_boolean());
  EXPECT_TRUE(index.flag("pin_memory", nullptr, kTyped).is_boolean());
  EXPECT_FALSE(index.flag("precision", nullptr, kTyped).is_boolean());
}

struct Left {
  int interval = 1, size = 1;
  static Table<Left> fields() {
    Table<Left> t;
    t.add("interval", &Left::interval, "Steps.");
    t.add("size", &Left::size, "Size.").flag("width");
    return t;
  }
};
struct Both {
  Left left, right;
  static Table<Both> fields() {
    Table<Both> t;
    t.group("left", &Both::left);
    t.group("right", &Both::right);
    return t;
  }
};

TEST(SchemaIndex, AWordThatCouldMeanTwoGroupsIsAnError) {
  Both both;
  Schema schema;
  schema.section("x", both);
  const SchemaIndex index(schema);
  EXPECT_EQ(config_error([&] { index.flag("interval", nullptr, kTyped); }),
            "flag --x: 'interval' could mean x.left.interval or x.right.interval; give the whole name.");
  EXPECT_EQ(index.flag("width", nullptr, kTyped).path, "x.left.size");
  for (const auto& [word, entry] : index.bare_flags()) EXPECT_NE(word, "interval");
}

TEST(SchemaIndex, DuplicatesAreOurMistake) {
  example::Trainer one, two;
  Schema schema;
  schema.section("trainer", one);
  schema.section("trainer", two);
  EXPECT_THROW(SchemaIndex index(schema), InternalError);
  Table<Left> table;
  table.add("a", &Left::size, "A.");
  EXPECT_THROW(table.add("a", &Left::interval, "A."), InternalError);
}

TEST(SchemaIndex, UnknownNamesSuggestTheLikeliest) {
  example::Job job;
  const SchemaIndex index(job.schema);
  const auto unknown = [&](const char* name) { return config_error([&] { index.unknown_flag(name, kTyped); }); };
  EXPECT_EQ(unknown("trainer.precison"), "flag --x: 'trainer.precison' is not an option; did you mean 'precision'?");
  EXPECT_EQ(unknown("trainer.batch_size"),
            "flag --x: 'trainer.batch_size' is not an option; did you mean 'model.train_ds.batch_size'?");
  EXPECT_EQ(unknown("model.train_ds.workers_per_gpus"),
            "flag --x: 'model.train_ds.workers_per_gpus' is not an option; did you mean 'workers_per_gpu'?");
  EXPECT_EQ(unknown("trainr.precision"), "flag --x: 'trainr' is not an option; did you mean 'trainer'?");
  EXPECT_EQ(unknown("batchsize"), "flag --x: 'batchsize' is not an option; did you mean 'model.train_ds.batch_size'?");
  EXPECT_EQ(unknown("runner.foo"), "flag --x: 'runner.foo' is not an option; there is max_iters.");
  EXPECT_EQ(unknown("zzzzzzzzzzzz"), "flag --x: 'zzzzzzzzzzzz' is not an option; run 'redline options' for the list.");
}

}  // namespace
}  // namespace redline::config
