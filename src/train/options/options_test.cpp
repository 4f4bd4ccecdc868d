// The tables of the trainer: names people bring, conversions, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/job.h"
#include "core/error.h"
#include "core/file_ops.h"
#include "device/precision_choice.h"
#include "train/options/exp_manager_options.h"
#include "train/options/optim_options.h"
#include "train/options/trainer_options.h"
#include "train/testing/harness.h"

namespace redline::train {
namespace {

using ::testing::HasSubstr;

struct Bound {
  RootConfig root;
  TrainerConfig trainer;
  OptimConfig optim;
  ExpManagerConfig exp;
  config::Schema schema;

  explicit Bound(const std::vector<std::string>& overrides, const std::filesystem::path& file = {}) {
    schema.section("", root);
    schema.section("trainer", trainer);
    schema.section("model.optim", optim);
    schema.section("exp_manager", exp);
    config::RequestSource source;
    source.overrides = overrides;
    if (!file.empty()) source.file = file;
    config::bind(config::read_request(source, schema), schema);
    trainer.check_and_derive();
    optim.check();
  }
};

std::string refusal(const std::vector<std::string>& overrides) {
  try {
    Bound bound(overrides);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TrainerOptions, TheGuidesFlagsAreAliases) {
  const Bound b({"--use_amp", "--gradient_accumulation_steps", "4", "--work-dir", "runs/x", "runner.max_iters=100",
                 "evaluation.interval=40000", "checkpoint_config.interval=1000", "log_config.interval=20",
                 "fp16.loss_scale=512.", "optimizer.type=AdamW", "optimizer.lr=6e-5", "lr_config.policy=poly",
                 "lr_config.warmup_iters=1500", "lr_config.warmup_ratio=1e-6",
                 "optimizer_config.grad_clip.max_norm=35"});
  EXPECT_EQ(b.trainer.precision.value(), "16-mixed");
  EXPECT_EQ(b.trainer.accumulate_grad_batches, 4);
  EXPECT_EQ(b.trainer.max_steps, 25);  // micro-iterations divided by the accumulation
  EXPECT_EQ(b.trainer.val_check_interval, "40000");
  EXPECT_EQ(b.trainer.log_every_n_steps, 20);
  EXPECT_EQ(b.trainer.gradient_clip_val, 35);
  EXPECT_EQ(b.exp.run_dir, "runs/x");
  EXPECT_EQ(b.exp.checkpoint_callback_params.every_n_micro_iterations, 1000);
  EXPECT_EQ(b.optim.name, "adamw");
  EXPECT_EQ(b.optim.lr, 6e-5);
  ASSERT_TRUE(b.optim.sched);
  EXPECT_EQ(b.optim.sched->name, "poly");
  EXPECT_EQ(b.optim.sched->warmup_start_factor, 1e-6);
  const LossScaler scaler(b.trainer.amp, true);
  EXPECT_FALSE(scaler.dynamic());
  EXPECT_EQ(scaler.scale(), 512.0);
}

TEST(TrainerOptions, ALossScaleAloneMeans16Mixed) {
  EXPECT_EQ(Bound({"fp16.loss_scale=512."}).trainer.precision.value(), "16-mixed");
  EXPECT_EQ(Bound({}).trainer.precision.value(), "32-true");
  EXPECT_EQ(Bound({"trainer.precision=bf16"}).trainer.precision.value(), "bf16");
  EXPECT_EQ(read_precision("bf16"), Precision::Bf16Mixed);
  EXPECT_EQ(read_precision("16"), Precision::Fp16Mixed);
  EXPECT_EQ(read_precision("32"), Precision::Fp32);
}

TEST(TrainerOptions, RefusesWithWords) {
  EXPECT_THAT(refusal({"trainer.max_steps=0"}), HasSubstr("nothing to train"));
  EXPECT_THAT(refusal({"trainer.precision=64-true"}), HasSubstr("bf16-mixed"));
  EXPECT_THAT(refusal({"trainer.val_check_interval=1.5"}), HasSubstr("share"));
  EXPECT_THAT(refusal({"trainer.max_time=soon"}), HasSubstr("max_time"));
  EXPECT_THAT(refusal({"trainer.memory_limit=much"}), HasSubstr("memory_limit"));
  for (const char* devices : {"many", "0", "-2", "1.5", "99999999999"})
    EXPECT_THAT(refusal({std::string("trainer.devices=") + devices}), HasSubstr("devices")) << devices;
  EXPECT_THAT(refusal({"trainer.presicion=32"}), HasSubstr("precision"));
  EXPECT_THAT(refusal({"model.optim.betas=[0.9]"}), HasSubstr("betas"));
  EXPECT_THAT(refusal({"model.optim.scale_lr=linear"}), HasSubstr("base_batch_size"));
  EXPECT_THAT(refusal({"model.optim.nesterov=true"}), HasSubstr("momentum"));
  EXPECT_THAT(refusal({"model.optim.custom_keys.norm.decay=0"}), HasSubstr("decay_mult"));
  EXPECT_THAT(refusal({"model.optim.sched.name=poly", "model.optim.sched.warmup_steps=3",
                       "model.optim.sched.warmup_ratio=0.1"}),
              HasSubstr("not both"));
}

TEST(TrainerOptions, StrategyTakesLightningsForms) {
  EXPECT_EQ(Bound({"trainer.strategy=ddp"}).trainer.strategy.name, "ddp");
  const testing::TemporaryFolder folder;
  write_file_atomic(
      folder.path() / "job.yaml",
      "trainer:\n  strategy: {_target_: lightning.pytorch.strategies.DDPStrategy, gradient_as_bucket_view: true}\n");
  const Bound b({}, folder.path() / "job.yaml");
  EXPECT_TRUE(b.trainer.strategy.gradient_as_bucket_view);
}

TEST(TrainerOptions, PrecisionFollowsTheUnits) {
  struct Case {
    Precision asked;
    bool strict, bf16, amx, fp16;
    Precision runs;
    bool warns;
  };
  for (const Case& c : std::vector<Case>{
           {Precision::Fp16Mixed, false, false, false, false, Precision::Fp32, true},
           {Precision::Fp16Mixed, false, true, false, false, Precision::Bf16Mixed, true},
           {Precision::Fp16Mixed, false, false, true, false, Precision::Bf16Mixed, true},
           {Precision::Fp16Mixed, false, true, true, true, Precision::Fp16Mixed, false},
           {Precision::Fp16Mixed, true, false, false, false, Precision::Fp16Mixed, true},
           {Precision::Fp16Mixed, true, true, false, false, Precision::Fp16Mixed, true},
           {Precision::Bf16Mixed, false, false, false, false, Precision::Bf16Mixed,
            true},  // slower, said, run as asked
           {Precision::Bf16Mixed, false, true, false, false, Precision::Bf16Mixed, false},
           {Precision::Bf16Mixed, false, false, true, false, Precision::Bf16Mixed, false},
           {Precision::Fp32, false, true, true, true, Precision::Fp32, false},
       }) {
    MachineFacts facts;
    facts.avx512_bf16 = c.bf16;
    facts.amx_bf16 = c.amx;
    facts.avx512_fp16 = c.fp16;
    const device::PrecisionChoice choice = device::choose_precision(c.asked, c.strict, facts, /*on_cpu=*/true);
    EXPECT_EQ(choice.precision, c.runs);
    EXPECT_EQ(!choice.warning.empty(), c.warns) << choice.warning;
    EXPECT_EQ(device::choose_precision(c.asked, c.strict, facts, /*on_cpu=*/false).precision, c.asked);
    // Rates of a starved probe: fp32 at 0.29 GFLOP/s instead of 200 once made fp16 win without units.
    for (const double fp32 : {0.0, 0.29, 200.0})
      for (const double half : {0.0, 4.0, 400.0}) {
        facts.gemm_fp32_gflops = fp32;
        facts.gemm_bf16_gflops = facts.gemm_fp16_gflops = half;
        EXPECT_EQ(device::choose_precision(c.asked, c.strict, facts, /*on_cpu=*/true).precision, c.runs);
      }
  }
}

TEST(OptimOptions, SchedulesFromTheConfig) {
  const Bound noam({"model.optim.lr=5.0", "model.optim.sched.name=NoamAnnealing", "model.optim.sched.d_model=512",
                    "model.optim.sched.warmup_steps=25000", "model.optim.sched.min_lr=1e-6"});
  EXPECT_NEAR(make_schedule(noam.optim, {}).at(25000), 1.3975e-3, 5e-8);

  std::vector<std::string> notes;
  const Bound cosine(
      {"model.optim.sched.name=cosine", "model.optim.sched.max_steps=500000", "model.optim.sched.warmup_steps=1000"});
  make_schedule(cosine.optim, {100, 10, 1, 8}, &notes);
  EXPECT_THAT(notes, ::testing::Contains(HasSubstr("never reaches its end")));
  EXPECT_THAT(notes, ::testing::Contains(HasSubstr("warm-up")));

  const Bound scaled({"model.optim.lr=0.1", "model.optim.scale_lr=sqrt", "model.optim.base_batch_size=256"});
  EXPECT_DOUBLE_EQ(make_schedule(scaled.optim, {100, 10, 1, 1024}).base_lr, 0.2);

  const Bound poly({"lr_config.policy=poly"});
  EXPECT_THROW(make_schedule(poly.optim, {}), ConfigError);  // no length
  EXPECT_EQ(make_schedule(poly.optim, {50, 10, 4, 8}).max_steps, 200);
  const Bound no_model({"model.optim.sched.name=NoamAnnealing"});
  EXPECT_THROW(make_schedule(no_model.optim, {}), ConfigError);
}

TEST(OptimOptions, AShortRunMayEndInItsWarmUpButAWrittenLengthMustHoldIt) {
  const Bound warm(
      {"model.optim.lr=0.1", "model.optim.sched.name=CosineAnnealing", "model.optim.sched.warmup_steps=100"});
  std::vector<std::string> notes;
  const Schedule cut = make_schedule(warm.optim, {20, 10, 1, 8}, &notes);
  EXPECT_THAT(notes, ::testing::Contains(HasSubstr("warm-up of 100 steps is longer than the run of 20")));
  EXPECT_NEAR(cut.at(20), 0.1 * 21 / 101, 1e-12);
  const Bound written({"model.optim.sched.name=CosineAnnealing", "model.optim.sched.warmup_steps=100",
                       "model.optim.sched.max_steps=50"});
  EXPECT_THROW(make_schedule(written.optim, {20, 10, 1, 8}), ConfigError);
}

TEST(OptimOptions, CustomKeys) {
  const Bound b({"optimizer.paramwise_cfg.custom_keys.norm.decay_mult=0.", "model.optim.weight_decay=0.01",
                 "model.optim.no_decay=[1d,bias]"});
  const ParameterRules rules = b.optim.rules();
  ASSERT_EQ(rules.custom_keys.size(), 1u);
  EXPECT_EQ(rules.custom_keys[0].key, "norm");
  EXPECT_EQ(rules.custom_keys[0].decay_mult, 0.0);
  EXPECT_THAT(rules.no_decay, ::testing::ElementsAre("1d", "bias"));
  EXPECT_TRUE(Bound({"model.optim.no_decay=none"}).optim.rules().no_decay.empty());
}

TEST(ExpManagerOptions, TheRunDirectory) {
  EXPECT_EQ(named_run_directory(Bound({"--run-dir", "a/b"}).exp, "job"), "a/b");
  EXPECT_EQ(named_run_directory(Bound({"exp_manager.exp_dir=out", "exp_manager.name=n"}).exp, "job"), "out/n");
  EXPECT_EQ(named_run_directory(Bound({"exp_manager.exp_dir=out"}).exp, "job"), "out/job");
  EXPECT_EQ(named_run_directory(Bound({}).exp, "job"), std::nullopt);
  EXPECT_TRUE(Bound({"--new-run"}).exp.new_run);
  EXPECT_FALSE(Bound({}).exp.new_run);
}

}  // namespace
}  // namespace redline::train
