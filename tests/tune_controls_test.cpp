// Certificates of real runs: switches that change nothing or rounding pass; five trainings that differ a little are
// rejected.
#include <gtest/gtest.h>

#include "train/testing/example_task.h"
#include "tune/evidence.h"

namespace redline::tune {
namespace {

using config::Effect;
using measure::CertificateKind;

enum class Sabotage { None, PaddedLength, DropsASample, Unweighted };
Sabotage& sabotage() {
  static Sabotage how = Sabotage::None;
  return how;
}

// The example task with mistakes people make.
class SabotagedTask : public example::CurveTask {
 public:
  using CurveTask::CurveTask;
  task::Loss loss(const task::Batch& batch, task::Context& ctx) override {
    if (!ctx.training() || sabotage() == Sabotage::None) return CurveTask::loss(batch, ctx);
    if (sabotage() == Sabotage::DropsASample && batch.size() > 1) {
      task::Batch fewer = batch;
      for (auto& [name, tensor] : fewer.tensors) tensor = tensor.narrow(0, 0, batch.size() - 1);
      fewer.sample_ids.pop_back();
      task::Context inner(ctx.seed(), ctx.step(), true, fewer.sample_ids);
      return CurveTask::loss(fewer, inner);
    }
    task::Loss loss = CurveTask::loss(batch, ctx);
    if (sabotage() == Sabotage::PaddedLength) {
      const torch::Tensor padded = torch::tensor(static_cast<float>(batch.at("y").numel()));
      loss.value = loss.value * loss.weight / padded;
      loss.weight = padded;
    }
    if (sabotage() == Sabotage::Unweighted) loss.weight = torch::ones({});
    return loss;
  }
};

class SabotagedConfig : public example::CurveConfig {
 public:
  std::unique_ptr<task::Task> build(uint64_t seed) const override {
    return std::make_unique<SabotagedTask>(options, seed);
  }
};

TEST(TunableOptions, EachIsMovedByARuleOrTheOtherWayRound) {
  task::Registry registry;
  example::register_curve(registry);
  config::RequestSource source;
  source.overrides = {"task=curve"};
  const auto job = train::Job::read(registry, source, {}, {true, false});
  int tunable = 0;
  for (const config::ResolvedValue& value : job->resolved().values()) {
    if (value.row == nullptr || !value.row->tunable) continue;
    ++tunable;
    EXPECT_TRUE(value.row->type == "bool" || has_rule(value.path.substr(value.path.rfind('.') + 1))) << value.path;
  }
  EXPECT_GE(tunable, 15);
}

class Controls : public ::testing::Test {
 protected:
  Controls() : jobs_{registry_, {}, {}} {
    example::register_curve(registry_);
    registry_.add(
        {"sabotaged", "The example with mistakes.", [] { return std::make_unique<SabotagedConfig>(); }, {}, {}});
    jobs_.source.tuned = {"task=sabotaged",
                          "model.train_ds.batch_size=8",
                          "model.train_ds.shuffle=true",
                          "model.train_ds.num_workers=0",
                          "model.optim.lr=0.01",
                          "trainer.accumulate_grad_batches=2",
                          "trainer.max_steps=1000",
                          "trainer.intra_op_threads=2"};
    jobs_.machine.allowed_cpus = jobs_.machine.logical_cpus = 2;
    options_.steps = 12;
    sabotage() = Sabotage::None;
  }
  ~Controls() override { sabotage() = Sabotage::None; }

  measure::Certificate judge(const Setting& setting, Effect effect) {
    return certify(jobs_, setting, effect, options_);
  }

  // A winner that trains with a mistake or with other options, presented as one that changes nothing.
  measure::Certificate judge_control(const std::vector<std::string>& typed, Sabotage how) {
    return certify_curve(
        jobs_,
        [&](int64_t steps) {
          sabotage() = how;
          const LossCurve curve = run_losses(jobs_, {}, typed, steps);
          sabotage() = Sabotage::None;
          return curve;
        },
        Effect::Numerics, true, options_);
  }

  void expect_rejected(const std::vector<std::string>& typed, Sabotage how) {
    const measure::Certificate certificate = judge_control(typed, how);
    EXPECT_EQ(certificate.kind, CertificateKind::Different) << certificate.reason;
    EXPECT_FALSE(certificate.accepted());
    ASSERT_TRUE(certificate.first_different_step.has_value());
    EXPECT_LE(*certificate.first_different_step, 4) << certificate.reason;
  }

  task::Registry registry_;
  JobSource jobs_;
  EvidenceOptions options_;
};

TEST_F(Controls, TheReferenceIsIdenticalToItself) {
  EXPECT_EQ(judge({}, Effect::Nothing).kind, CertificateKind::Identical);
  EXPECT_EQ(judge_control({}, Sabotage::None).kind, CertificateKind::Identical);
}

TEST_F(Controls, WorkersChangeNoBit) {
  EXPECT_EQ(judge({{"model.train_ds.num_workers", "2"}}, Effect::Nothing).kind, CertificateKind::Identical);
}

TEST_F(Controls, ThreadsAndMicroBatchesStayWithinRounding) {
  EXPECT_TRUE(judge({{"trainer.intra_op_threads", "1"}}, Effect::Numerics).accepted());
  for (const char* rows : {"2", "4", "16"}) {
    const auto certificate = judge({{"model.train_ds.micro_batch_size", rows}}, Effect::Numerics);
    EXPECT_TRUE(certificate.accepted()) << rows << ": " << certificate.reason;
  }
}

TEST_F(Controls, BucketsKeepTheSamples) {
  const auto certificate =
      judge({{"model.train_ds.use_bucketing", "true"}, {"model.train_ds.num_buckets", "4"}}, Effect::Order);
  ASSERT_EQ(certificate.checks.size(), 2u);
  EXPECT_TRUE(certificate.checks[1].passed);
}

TEST_F(Controls, AnotherBatchNeedsConsent) {
  const Setting larger = {{"model.train_ds.batch_size", "16"}, {"model.train_ds.micro_batch_size", "16"}};
  options_.steps = 24;
  EXPECT_FALSE(judge(larger, Effect::Optimisation).accepted());
}

TEST_F(Controls, LearningRateFivePercentHigherIsRejected) {
  expect_rejected({"model.optim.lr=0.0105"}, Sabotage::None);
}
TEST_F(Controls, LossOverThePaddedLengthIsRejected) { expect_rejected({}, Sabotage::PaddedLength); }
TEST_F(Controls, OneSampleDroppedPerStepIsRejected) { expect_rejected({}, Sabotage::DropsASample); }
TEST_F(Controls, DropoutOffIsRejected) { expect_rejected({"model.dropout=0"}, Sabotage::None); }
TEST_F(Controls, UnweightedAccumulationIsRejected) { expect_rejected({}, Sabotage::Unweighted); }

TEST(PerSamples, CurvesOfDifferentBatchesShareAScale) {
  LossCurve small{{4, 2, 3, 1}, {8, 8, 8, 8}}, large{{3, 2}, {16, 16}};
  EXPECT_EQ(per_samples(small, 16, 2), (std::vector<double>{3, 2}));
  EXPECT_EQ(per_samples(large, 16, 2), (std::vector<double>{3, 2}));
}

}  // namespace
}  // namespace redline::tune
