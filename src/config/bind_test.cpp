#include <gtest/gtest.h>

#include "config/testing/example_job.h"
#include "config/testing/test_files.h"

namespace redline::config {
namespace {

using testing::config_error;

Resolved bind_text(example::Job& job, const std::string& yaml) {
  return bind(read_yaml_text(yaml, "x.yaml"), job.schema);
}
std::string binding_error(const std::string& yaml) {
  example::Job job;
  return config_error([&] { bind_text(job, yaml); });
}

TEST(Bind, EmptyRequestGivesTheDefaults) {
  example::Job job;
  const Resolved resolved = bind(Node::map(), job.schema);
  EXPECT_EQ(resolved.find("trainer.precision")->value.text(), "32-true");
  EXPECT_EQ(resolved.find("trainer.precision")->origin.kind, OriginKind::Default);
  EXPECT_TRUE(resolved.find("model.spec_augment")->value.is_null());
  EXPECT_EQ(resolved.find("model.validation_ds.batch_size"), nullptr);
  EXPECT_FALSE(resolved.has_section("model.validation_ds"));
  EXPECT_TRUE(resolved.has_section("model.train_ds"));
  EXPECT_EQ(resolved.still_auto(), (std::vector<std::string>{"trainer.devices", "model.train_ds.num_workers"}));
}

TEST(Bind, OptionalSectionsAndGroups) {
  example::Job job;
  const Resolved with =
      bind_text(job, "model:\n  validation_ds: {}\n  spec_augment: {freq_masks: 2}\n  optim: {sched: {}}\n");
  EXPECT_TRUE(with.has_section("model.validation_ds"));
  EXPECT_TRUE(with.has_section("model.spec_augment"));
  EXPECT_EQ(job.model.spec_augment->freq_masks, 2);
  EXPECT_TRUE(job.optim.sched.has_value());
  EXPECT_EQ(with.find("model.optim.sched.warmup_steps")->value.text(), "0");

  const Resolved without = bind_text(job, "model:\n  validation_ds: null\n  spec_augment: null\n  optim:\ntrainer:\n");
  EXPECT_FALSE(without.has_section("model.validation_ds"));
  EXPECT_FALSE(job.model.spec_augment.has_value());
  EXPECT_EQ(without.find("model.spec_augment")->origin.text(), "x.yaml:3:17");
}

TEST(Bind, Targets) {
  example::Job job;
  bind_text(job,
            "trainer:\n  strategy: {_target_: lightning.pytorch.strategies.DDPStrategy, static_graph: true}\n"
            "model:\n  encoder: {_target_: my.fork.ConformerEncoder}\n");
  EXPECT_TRUE(job.trainer.strategy.static_graph);
  EXPECT_EQ(binding_error("trainer:\n  strategy:\n    _target_: lightning.pytorch.strategies.FSDPStrategy\n"),
            "x.yaml:3:15: _target_ 'lightning.pytorch.strategies.FSDPStrategy' is not supported for trainer.strategy; "
            "supported are "
            "lightning.pytorch.strategies.DDPStrategy, SingleDeviceStrategy.");
  EXPECT_EQ(binding_error("model:\n  optim: {_target_: torch.optim.AdamW}\n"),
            "x.yaml:2:21: _target_ 'torch.optim.AdamW' is not supported for model.optim; supported there is none, so "
            "remove the line.");
  EXPECT_EQ(binding_error("model:\n  encoder: {_target_: [a]}\n"),
            "x.yaml:2:23: _target_ of model.encoder must be the name of a class, found a list of 1.");
}

struct Chosen {
  std::string target = "Hann";
  int size = 1;
  static Table<Chosen> fields() {
    Table<Chosen> t;
    t.add("_target_", &Chosen::target, "Which window.");
    t.add("size", &Chosen::size, "Size.");
    t.target("a.b.Hann").target("Hamming");
    return t;
  }
};

TEST(Bind, ARowMayReceiveTheTarget) {
  Chosen chosen;
  Schema schema;
  schema.section("window", chosen);
  bind(read_yaml_text("window: {_target_: x.y.Hamming, size: 2}", "x.yaml"), schema);
  EXPECT_EQ(chosen.target, "Hamming");
  const Resolved resolved = bind(read_yaml_text("window: {_target_: Hann}", "x.yaml"), schema);
  EXPECT_EQ(chosen.target, "Hann");
  EXPECT_NE(resolved.dump_yaml(false).find("_target_: Hann"), std::string::npos);
}

TEST(Bind, ShorthandOfAGroup) {
  example::Job job;
  bind_text(job, "trainer: {strategy: ddp}\n");
  EXPECT_EQ(job.trainer.strategy.name, "ddp");
  EXPECT_EQ(
      binding_error("trainer: {strategy: fsdp}"),
      "x.yaml:1:21: trainer.strategy.name must be one of auto, ddp, ddp_find_unused_parameters_true, found 'fsdp'.");
  EXPECT_EQ(binding_error("trainer: {strategy: [1]}"),
            "x.yaml:1:21: trainer.strategy must be a map of keys, found a list of 1; a single word sets "
            "trainer.strategy.name.");
  EXPECT_EQ(binding_error("model: {encoder: big}"), "x.yaml:1:18: model.encoder must be a map of keys, found 'big'.");
}

TEST(Bind, AcceptedKeysAreReadAndNoted) {
  example::Job job;
  const Resolved resolved = bind_text(job,
                                      "trainer: {accelerator: auto, logger: False, strategy: {process_group_backend: "
                                      "null}}\nexp_manager: {wandb_logger_kwargs: {name: x}}\n");
  ASSERT_EQ(resolved.ignored().size(), 4u);
  EXPECT_EQ(resolved.ignored()[0].path, "trainer.accelerator");
  EXPECT_EQ(resolved.ignored()[0].reason, "the device is found at start");
  EXPECT_EQ(binding_error("trainer: {accelerator: tpu}"),
            "x.yaml:1:24: trainer.accelerator is only understood as cpu, auto (the device is found at start), found "
            "'tpu'; change or "
            "remove it.");
}

TEST(Bind, MustBeGivenIsAnErrorOnlyWhenUsed) {
  example::Job job;
  job.train_ds.manifest_filepath = {"default.json"};
  const Resolved resolved = bind_text(job, "model:\n  train_ds:\n    manifest_filepath: ???\n  spec_augment: ???\n");
  EXPECT_EQ(job.train_ds.manifest_filepath, (std::vector<std::string>{"default.json"}));
  EXPECT_EQ(config_error([&] { resolved.require("model.train_ds.manifest_filepath"); }),
            "x.yaml:3:24: model.train_ds.manifest_filepath must be given here; add it to the recipe or write "
            "model.train_ds.manifest_filepath=VALUE on the command line.");
  EXPECT_EQ(config_error([&] { resolved.require("exp_manager.exp_dir"); }),
            "default: exp_manager.exp_dir must be given here; add it to the recipe or write exp_manager.exp_dir=VALUE "
            "on the command "
            "line.");
  EXPECT_EQ(resolved.require("trainer.precision").text(), "32-true");
  EXPECT_THROW(resolved.require("trainer.unknown"), InternalError);
}

TEST(Bind, UnknownKeysAtEveryLevel) {
  EXPECT_EQ(binding_error("model:\n  encoder:\n    d_modl: 5\n"),
            "x.yaml:3:5: 'model.encoder.d_modl' is not an option; did you mean 'd_model'?");
  EXPECT_EQ(binding_error("model:\n  train_ds:\n    seed: 5\n"),
            "x.yaml:3:5: 'model.train_ds.seed' is not an option; did you mean 'seed'?");
  EXPECT_EQ(binding_error("model:\n  spec_augment: {freq_mask: 1}\n"),
            "x.yaml:2:18: 'model.spec_augment.freq_mask' is not an option; did you mean 'freq_masks'?");
}

struct RoomA {
  int a = 1;
  static Table<RoomA> fields() {
    Table<RoomA> t;
    t.add("a", &RoomA::a, "A.");
    return t;
  }
};
struct RoomB {
  int b = 1;
  std::optional<std::string> kind;
  static Table<RoomB> fields() {
    Table<RoomB> t;
    t.add("b", &RoomB::b, "B.");
    t.add("deep", &RoomB::kind, "A word, or a section of another room.");
    return t;
  }
};

TEST(Bind, RoomsMayShareAPathAndADeeperSectionOwnsItsKeys) {
  RoomA a, deep;
  RoomB b;
  Schema schema;
  schema.section("x", a);
  schema.section("x", b);
  schema.section("x.deep", deep, true);
  const Resolved with_section = bind(read_yaml_text("x: {a: 2, b: 3, deep: {a: 4}}", "x.yaml"), schema);
  EXPECT_EQ(with_section.dump_yaml(false), "x:\n  deep:\n    a: 4\n  a: 2\n  b: 3\n");
  EXPECT_EQ(a.a, 2);
  EXPECT_EQ(b.b, 3);
  EXPECT_EQ(deep.a, 4);
  const Resolved word = bind(read_yaml_text("x: {deep: word}", "x.yaml"), schema);
  EXPECT_EQ(b.kind, "word");
  EXPECT_EQ(word.dump_yaml(false), "x:\n  a: 2\n  b: 3\n  deep: word\n");
}

TEST(Snapshot, ResolvedAutosSayWhatTheyCameFrom) {
  example::Job job;
  const Resolved bound =
      bind_text(job, "trainer: {devices: auto, max_steps: 5}\nmodel:\n  train_ds:\n    manifest_filepath: ???\n");
  job.trainer.devices.set(2);
  job.train_ds.num_workers.set(1);
  job.optim.sched.emplace();
  const Resolved now = snapshot(job.schema, bound);
  EXPECT_EQ(now.find("trainer.devices")->value.text(), "2");
  EXPECT_EQ(now.find("trainer.devices")->origin.text(), "resolved from x.yaml:1:20");
  EXPECT_EQ(now.find("model.train_ds.num_workers")->origin.text(), "resolved from default");
  EXPECT_EQ(now.find("trainer.max_steps")->origin.text(), "x.yaml:1:37");
  EXPECT_EQ(now.find("trainer.precision")->origin.text(), "default");
  EXPECT_TRUE(now.find("model.train_ds.manifest_filepath")->value.is_missing_marker());
  EXPECT_EQ(now.find("model.optim.sched.name")->origin.text(), "resolved");
  EXPECT_TRUE(now.still_auto().empty());
  EXPECT_NE(now.hash(), bound.hash());
  EXPECT_EQ(snapshot(job.schema, now).hash(), now.hash());
}

}  // namespace
}  // namespace redline::config
