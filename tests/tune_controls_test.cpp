// Certificates of real runs: switches that change nothing or rounding pass; five trainings that differ a little are
// rejected.
#include <gtest/gtest.h>

#include "train/testing/example_task.h"
#include "tune/proof/evidence.h"

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

TEST(TunableOptions, EachNamesItsValuesOrARuleThatIsThere) {
  task::Registry registry;
  example::register_curve(registry);
  config::RequestSource source;
  source.overrides = {"task=curve"};
  const auto job = train::Job::read(registry, source, {});
  const auto space = config::search_space(job->resolved());
  for (const config::SearchDimension& option : space)
    EXPECT_TRUE(option.rule.empty() ? !option.tried.empty() : doctor::is_rule(option.rule)) << option.path;
  EXPECT_GE(space.size(), 15u);
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

  static Candidate member(const Setting& values, Effect effect) { return {"member", values, 0, 1e9, effect}; }

  measure::Certificate judge(const Setting& setting, Effect effect) {
    return certify(jobs_, {member(setting, effect)}, options_).certificate;
  }

  // A winner that trains with a mistake or with other options, presented as one that changes nothing but rounding,
  // alone or together with switches that do.
  Proof judge_control(const std::vector<std::string>& typed, Sabotage how, const Setting& in_company = {}) {
    options_.run_winner = [&](const Setting& setting, int64_t steps) {
      sabotage() = how;
      const LossCurve curve = run_losses(jobs_, setting, typed, steps);
      sabotage() = Sabotage::None;
      return curve;
    };
    std::vector<Candidate> members = {member({}, Effect::Numerics)};
    if (!in_company.empty()) members.push_back(member(in_company, Effect::Order));
    Proof proof = certify(jobs_, members, options_);
    options_.run_winner = nullptr;
    return proof;
  }

  void expect_rejected(const std::vector<std::string>& typed, Sabotage how) {
    const Setting buckets = {{"model.train_ds.use_bucketing", "true"}, {"model.train_ds.num_buckets", "4"}};
    for (const Setting& in_company : {Setting(), buckets}) {
      const Proof proof = judge_control(typed, how, in_company);
      EXPECT_EQ(proof.certificate.kind, CertificateKind::Different) << proof.certificate.reason;
      EXPECT_FALSE(proof.certificate.accepted());
      EXPECT_TRUE(proof.failed_step_by_step);
      ASSERT_TRUE(proof.certificate.first_different_step.has_value());
      EXPECT_LE(*proof.certificate.first_different_step, 4) << proof.certificate.reason;
    }
  }

  task::Registry registry_;
  JobSource jobs_;
  EvidenceOptions options_;
};

TEST_F(Controls, TheReferenceIsIdenticalToItself) {
  EXPECT_EQ(judge({}, Effect::Nothing).kind, CertificateKind::Identical);
  EXPECT_EQ(judge_control({}, Sabotage::None).certificate.kind, CertificateKind::Identical);
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

TEST_F(Controls, InCompanyEachPartIsProvedAsItsKindAsks) {
  const std::vector<Candidate> members = {
      member({{"model.train_ds.micro_batch_size", "4"}}, Effect::Numerics),
      member({{"model.train_ds.use_bucketing", "true"}, {"model.train_ds.num_buckets", "4"}}, Effect::Order)};
  const Proof proof = certify(jobs_, members, options_);
  ASSERT_EQ(proof.certificate.checks.size(), 3u) << proof.certificate.reason;
  EXPECT_EQ(proof.certificate.checks[1].name, "samples of an epoch");
  EXPECT_EQ(proof.certificate.checks[2].name, "loss of steps 1..12");
  EXPECT_TRUE(proof.certificate.checks[2].passed);
  EXPECT_EQ(proof.certificate.effects, std::vector<std::string>{"order"});
}

// The first loss of a winner comes before any of its updates; a proof needs some.
TEST_F(Controls, ALargerBatchMakesEnoughUpdatesToBeJudged) {
  EXPECT_EQ(least_curve_steps(1), kLeastCurveSteps);
  EXPECT_EQ(least_curve_steps(8), 8 * kLeastCurveSteps);
  options_.consent = true;
  options_.curve_steps = least_curve_steps(2);
  const Setting larger = {
      {"model.train_ds.batch_size", "16"}, {"model.train_ds.micro_batch_size", "16"}, {"model.optim.lr", "1000"}};
  const auto certificate = judge(larger, Effect::Optimisation);
  EXPECT_EQ(certificate.candidate_losses.size(), static_cast<size_t>(kLeastCurveSteps));
  EXPECT_FALSE(certificate.accepted()) << certificate.reason;
}

TEST_F(Controls, AnotherBatchNeedsConsent) {
  const Setting larger = {{"model.train_ds.batch_size", "16"}, {"model.train_ds.micro_batch_size", "16"}};
  options_.curve_steps = 24;
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

TEST(PerSamples, AStepThatReachesOverSeveralBinsLeavesNoneEmpty) {
  // Batches bounded by length: 9, 12 and 9 samples, in bins of 10.
  const LossCurve uneven{{4, 2, 1}, {9, 12, 9}};
  const std::vector<double> bins = per_samples(uneven, 10, 3);
  ASSERT_EQ(bins.size(), 3u);
  EXPECT_NEAR(bins[0], (9 * 4 + 1 * 2) / 10.0, 1e-12);
  EXPECT_NEAR(bins[1], 2, 1e-12);
  EXPECT_NEAR(bins[2], (1 * 2 + 9 * 1) / 10.0, 1e-12);
  EXPECT_EQ(per_samples({{5}, {40}}, 10, 3), (std::vector<double>{5, 5, 5}));
}

}  // namespace
}  // namespace redline::tune
