// Files, bases, presets, aliases and flags: which layer wins, and what each mistake says.
#include <gtest/gtest.h>

#include "config/testing/example_job.h"
#include "config/testing/test_files.h"

namespace redline::config {
namespace {

using testing::config_error;
using testing::Folder;

RequestSource from_file(const std::filesystem::path& path, std::vector<std::string> words = {}) {
  RequestSource source;
  source.file = path;
  source.overrides = std::move(words);
  return source;
}

TEST(Request, FlagsBeatTunedBeatsPresetBeatsFileBeatsBase) {
  const Folder folder;
  folder.write(
      "base.yaml",
      "seed: 1\nname: base\ntask: t\ntrainer: {max_steps: 1, precision: 32, devices: 1}\nmodel: {num_classes: 10}\n");
  const auto file = folder.write(
      "sub/x.yaml",
      "base: ../base.yaml\nname: file\ntrainer: {max_steps: 2}\n"
      "presets:\n  quick:\n    trainer.max_steps: 3\n    batch_size: 2\n    model: {encoder: {d_model: 8}}\n"
      "  words: [trainer.max_steps=4, --use_amp, ~name]\n");
  example::Job job;
  RequestSource source = from_file(file);
  const Resolved plain = job.read(source);
  EXPECT_EQ(job.root.seed, 1);
  EXPECT_EQ(job.root.name, "file");
  EXPECT_EQ(job.trainer.max_steps, 2);
  EXPECT_EQ(job.model.num_classes, 10);
  EXPECT_EQ(plain.find("seed")->origin.text(), (folder.path() / "sub/../base.yaml").string() + ":1:7");
  EXPECT_EQ(plain.find("model.encoder.d_model")->origin.text(), "default");

  example::Job quick;
  source.preset = "quick";
  source.tuned = {"model.train_ds.num_workers=2", "trainer.max_steps=9"};
  source.tuned_by = "card.json";
  source.overrides = {"--max_steps", "7"};
  const Resolved resolved = quick.read(source);
  EXPECT_EQ(quick.trainer.max_steps, 7);
  EXPECT_EQ(quick.train_ds.batch_size.value(), 2);
  EXPECT_EQ(quick.model.encoder.d_model, 8);
  EXPECT_EQ(resolved.find("model.train_ds.num_workers")->origin.text(), "tuned by card.json");
  EXPECT_EQ(resolved.find("model.train_ds.batch_size")->origin.text(), "preset quick, " + file.string() + ":7:17");
  EXPECT_EQ(resolved.find("trainer.max_steps")->origin.text(), "flag --max_steps 7");

  example::Job words;
  RequestSource with_words = from_file(file);
  with_words.preset = "words";
  words.read(with_words);
  EXPECT_EQ(words.trainer.max_steps, 4);
  EXPECT_EQ(words.trainer.precision, "16-mixed");
  EXPECT_EQ(words.root.name, "run");
  EXPECT_EQ(preset_names(file), (std::vector<std::string>{"quick", "words"}));
}

TEST(Request, AliasesReachTheirRowAndALaterLayerWinsWhateverItsName) {
  const Folder folder;
  const auto file = folder.write("x.yaml",
                                 "use_amp: true\nrunner: {max_iters: 100}\noptimizer_config: {accumulative_counts: 4}\n"
                                 "model: {train_ds: {samples_per_gpu: 3, workers_per_gpu: 2}}\nwork-dir: /runs\n");
  example::Job job;
  const Resolved resolved = job.read(from_file(file));
  EXPECT_EQ(job.trainer.precision, "16-mixed");
  EXPECT_EQ(job.trainer.max_steps, 100);
  EXPECT_EQ(job.trainer.accumulate_grad_batches, 4);
  EXPECT_EQ(job.train_ds.batch_size.value(), 3);
  EXPECT_EQ(job.train_ds.num_workers.value(), 2);
  EXPECT_EQ(job.experiment.exp_dir, "/runs");
  EXPECT_EQ(resolved.find("trainer.max_steps")->origin.text(), file.string() + ":2:21 (as runner.max_iters: 100)");
  EXPECT_EQ(resolved.find("trainer.precision")->origin.text(), file.string() + ":1:10 (as use_amp: true)");

  job.read(from_file(file, {"--trainer.accumulate_grad_batches", "8", "trainer.precision=bf16-mixed"}));
  EXPECT_EQ(job.trainer.accumulate_grad_batches, 8);
  EXPECT_EQ(job.trainer.precision, "bf16-mixed");
  job.read(from_file(file, {"trainer.precision=bf16-mixed", "--no-use_amp", "--gradient_accumulation_steps=2"}));
  EXPECT_EQ(job.trainer.precision, "32-true");
  EXPECT_EQ(job.trainer.accumulate_grad_batches, 2);
}

TEST(Request, TheSameThingUnderTwoNamesInOneFileIsAnError) {
  const Folder folder;
  const auto file = folder.write("x.yaml", "model:\n  train_ds:\n    batch_size: 4\n    samples_per_gpu: 3\n");
  example::Job job;
  EXPECT_EQ(config_error([&] { job.read(from_file(file)); }, folder.path()),
            "x.yaml:4:5 (as model.train_ds.samples_per_gpu: 3): model.train_ds.batch_size is also given at x.yaml:3:5; "
            "remove one of them.");
}

TEST(Request, AConversionThatFailsSaysWhere) {
  const Folder folder;
  const auto file = folder.write("x.yaml", "use_amp: maybe\n");
  example::Job job;
  EXPECT_EQ(config_error([&] { job.read(from_file(file)); }, folder.path()),
            "x.yaml:1:10 (as use_amp: maybe): use_amp must be true or false.");
}

TEST(Request, ReferencesGoThroughLayersAliasesVariablesAndDefaults) {
  const Folder folder;
  const auto file = folder.write(
      "x.yaml",
      "name: exp\nfeat: {dim: 80, list: [1, 2]}\nuse_amp: ${flag}\nflag: true\n"
      "runner: {max_iters: 50}\n"
      "model:\n  sample_rate: 8000\n  num_classes: ${feat.dim}\n  train_ds:\n    sample_rate: ${model.sample_rate}\n"
      "    batch_size: ${runner.max_iters}\n    manifest_filepath: /data/${name}.json\n"
      "  encoder: {n_layers: 2, d_model: '${.n_layers}', att_context_size: '${feat.list}'}\n"
      "  optim: {sched: {warmup_steps: '${seed}'}}\n"
      "exp_manager: {exp_dir: '${model.optim.name}'}\n");
  example::Job job;
  job.read(from_file(file, {"model.sample_rate=4000", "feat.dim=81"}));
  EXPECT_EQ(job.train_ds.sample_rate, 4000);
  EXPECT_EQ(job.model.num_classes, 81);
  EXPECT_EQ(job.trainer.precision, "16-mixed");
  EXPECT_EQ(job.train_ds.batch_size.value(), 50);
  EXPECT_EQ(job.train_ds.manifest_filepath, (std::vector<std::string>{"/data/exp.json"}));
  EXPECT_EQ(job.model.encoder.d_model, 2);
  EXPECT_EQ(job.model.encoder.att_context_size, (std::vector<int>{1, 2}));
  EXPECT_EQ(job.optim.sched->warmup_steps, 0);
  EXPECT_EQ(job.experiment.exp_dir, "adamw") << "a value nobody wrote is its default";
}

TEST(Request, AWholeSectionMayBeAReference) {
  const Folder folder;
  const auto file =
      folder.write("x.yaml", "model: {train_ds: {samples_per_gpu: 5}, validation_ds: '${model.train_ds}'}\n");
  example::Job job;
  const Resolved resolved = job.read(from_file(file, {"model.validation_ds.shuffle=false"}));
  // The flag replaced the reference: what is typed last is what counts.
  EXPECT_FALSE(job.validation_ds.shuffle);
  example::Job other;
  other.read(from_file(file));
  EXPECT_EQ(other.validation_ds.batch_size.value(), 5);
}

TEST(Request, RemovalsAndItems) {
  const Folder folder;
  const auto file = folder.write(
      "x.yaml", "seed: 5\nmodel: {validation_ds: {batch_size: 2}, extra: {a: {b: 1}, l: [1, 2]}}\nuse_amp: true\n");
  example::Job job;
  const Resolved resolved =
      job.read(from_file(file, {"~model.validation_ds", "~seed=5", "~use_amp", "model.extra.a.c=2", "model.extra.l.0=9",
                                "model.optim.betas.1=0.5", "~model.extra.a.b"}));
  EXPECT_FALSE(resolved.has_section("model.validation_ds"));
  EXPECT_EQ(job.root.seed, 0);
  EXPECT_EQ(job.trainer.precision, "32-true");
  EXPECT_EQ(job.optim.betas, (std::vector<double>{0.9, 0.5}));
  EXPECT_EQ(job.model.extra.find_path("a.c")->text(), "2");
  EXPECT_EQ(job.model.extra.find_path("a.b"), nullptr);
  EXPECT_EQ(job.model.extra.find_path("l.0")->text(), "9");
  EXPECT_EQ(config_error([&] { job.read(from_file(file, {"~seed=6"})); }),
            "flag ~seed=6: seed is '5', not '6'; write ~seed to remove it anyway.");
  job.read(from_file(file, {"~trainer.max_steps"}));  // known, just not there
  EXPECT_NE(config_error([&] { job.read(from_file(file, {"~nothing"})); }), "no error");
}

TEST(Request, Errors) {
  const Folder folder;
  const auto error_of = [&](const std::string& name, const std::optional<std::string>& preset = {}) {
    example::Job job;
    RequestSource source = from_file(folder.path() / name);
    source.preset = preset;
    return config_error([&] { job.read(source); }, folder.path());
  };
  folder.write("a.yaml", "base: b.yaml\n");
  folder.write("b.yaml", "base: a.yaml\n");
  EXPECT_EQ(error_of("a.yaml"),
            "'a.yaml' is its own base, directly or through others; remove one of the 'base:' lines.");
  folder.write("c.yaml", "seed: 1\nbase: missing.yaml\n");
  EXPECT_EQ(error_of("c.yaml"),
            "c.yaml:2:7: the base 'missing.yaml' does not exist; check the path, which is relative to this file.");
  folder.write("d.yaml", "base: {x: 1}\n");
  EXPECT_EQ(error_of("d.yaml"),
            "d.yaml:1:7: base must be the path of another recipe, relative to this file, found a map of 1.");
  folder.write("e.yaml", "presets: {quick: {}, debug: {seed: 1}}\n");
  EXPECT_EQ(error_of("e.yaml", "quik"), "There is no preset 'quik' in 'e.yaml'; did you mean 'quick'?");
  EXPECT_EQ(error_of("e.yaml", "zzzzzz"), "There is no preset 'zzzzzz' in 'e.yaml'; there is quick, debug.");
  EXPECT_EQ(error_of("e.yaml", "debug"), "no error");
  folder.write("f.yaml", "presets: 3\n");
  EXPECT_EQ(error_of("f.yaml"), "f.yaml:1:10: presets must map names to overrides, found '3'.");
  folder.write("g.yaml", "presets: {p: {trainer.precison: 1}}\n");
  EXPECT_EQ(error_of("g.yaml", "p"),
            "preset p, g.yaml:1:15: 'trainer.precison' is not an option; did you mean 'precision'?");
  folder.write("h.yaml", "trainer:\n  precison: 16\n");
  EXPECT_EQ(error_of("h.yaml"), "h.yaml:2:3: 'trainer.precison' is not an option; did you mean 'precision'?");
  folder.write("i.yaml", "trainr:\n  precision: 16\n");
  EXPECT_EQ(error_of("i.yaml"), "i.yaml:1:1: 'trainr' is not an option; did you mean 'trainer'?");
  folder.write("j.yaml", "trainer: 5\n");
  EXPECT_EQ(error_of("j.yaml"), "j.yaml:1:10: trainer must be a map of keys, found '5'.");
  folder.write("k.yaml", "runner: [1]\n");
  EXPECT_EQ(error_of("k.yaml"), "k.yaml:1:9: runner must be a map of keys, found a list of 1.");
  folder.write("l.yaml", "trainer.precision: 16\n");
  EXPECT_NE(error_of("l.yaml"), "no error");
  folder.write("m.yaml", "model:\n  num_classes: ${a}\na: ${model.num_classes}\n");
  EXPECT_NE(error_of("m.yaml").find("goes in a circle: "), std::string::npos) << error_of("m.yaml");
}

TEST(Request, Peek) {
  const Folder folder;
  folder.write("base.yaml", "task: convnext\n");
  const auto file = folder.write("x.yaml", "base: base.yaml\npresets: {p: {task: lss}}\n");
  RequestSource source = from_file(file);
  EXPECT_EQ(peek_request(source, "task"), "convnext");
  source.preset = "p";
  EXPECT_EQ(peek_request(source, "task"), "lss");
  source.overrides = {"x=1", "task=vae"};
  EXPECT_EQ(peek_request(source, "task"), "vae");
  source.overrides = {"--task", "nest"};
  EXPECT_EQ(peek_request(source, "task"), "nest");
  EXPECT_EQ(peek_request(source, "other"), std::nullopt);
}

}  // namespace
}  // namespace redline::config
