// Certificates of real runs. Step by step: switches that change nothing or rounding pass; five trainings that differ a
// little are rejected. By pairs: what does no harm passes, what learns nothing, too fast or from too little does not.
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
    options_.consent = true;
    sabotage() = Sabotage::None;
  }

  // Pairs of runs of so many steps.
  void plan_pairs(int64_t steps) {
    const auto job = train::Job::read(registry_, jobs_.with({}), jobs_.machine);
    const auto task = job->build_task();
    const double batch =
        static_cast<double>(job->train_ds().batch_size.value() * job->trainer().accumulate_grad_batches);
    const double samples = batch * static_cast<double>(job->trainer().max_steps);
    runs_.emplace(jobs_, plan_judged_run(*job, *task, {batch, samples, steps}));
    options_.runs = &*runs_;
  }
  // Without noise of its own and with a rate that ends low, so that few pairs suffice.
  void learn_clearly() {
    jobs_.source.tuned.insert(jobs_.source.tuned.end(),
                              {"model.dropout=0", "model.features=2", "model.optim.lr=0.03",
                               "model.optim.sched.name=CosineAnnealing", "model.optim.sched.min_lr=0"});
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
  std::optional<HeldOutRuns> runs_;
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

const Setting kBuckets = {{"model.train_ds.use_bucketing", "true"}, {"model.train_ds.num_buckets", "4"}};
const Setting kLarger = {{"model.train_ds.batch_size", "16"}, {"model.train_ds.micro_batch_size", "16"}};

TEST_F(Controls, BucketsAreNotWorse) {
  learn_clearly();
  plan_pairs(300);
  const auto certificate = judge(kBuckets, Effect::Order);
  EXPECT_EQ(certificate.kind, CertificateKind::NotWorse) << certificate.reason;
  ASSERT_EQ(certificate.checks.size(), 2u);
  EXPECT_EQ(certificate.checks[1].name, "samples of an epoch");
  EXPECT_TRUE(certificate.checks[1].passed);
  ASSERT_TRUE(certificate.paired.has_value());
  EXPECT_GE(certificate.paired->pairs, 3);
  EXPECT_LT(certificate.paired->p, certificate.paired->level);
  EXPECT_GT(certificate.paired->power, 0.5);
  EXPECT_NEAR(certificate.paired->margin, 0.05 * (certificate.paired->start - certificate.paired->reference), 1e-9);
  EXPECT_NE(certificate.paired->schedule.find("30 % of the job's own"), std::string::npos)
      << certificate.paired->schedule;
}

TEST_F(Controls, InCompanyEachPartIsProvedAsItsKindAsks) {
  plan_pairs(80);
  const std::vector<Candidate> members = {member({{"model.train_ds.micro_batch_size", "4"}}, Effect::Numerics),
                                          member(kBuckets, Effect::Order)};
  const Proof proof = certify(jobs_, members, options_);
  ASSERT_EQ(proof.certificate.checks.size(), 3u) << proof.certificate.reason;
  EXPECT_EQ(proof.certificate.checks[1].name, "samples of an epoch");
  EXPECT_EQ(proof.certificate.checks[2].name, "loss of steps 1..12");
  EXPECT_TRUE(proof.certificate.checks[2].passed);
  EXPECT_EQ(proof.certificate.effects, std::vector<std::string>{"order"});
}

TEST_F(Controls, WithoutTimeForPairsNothingIsShown) {
  const auto certificate = judge(kBuckets, Effect::Order);
  EXPECT_EQ(certificate.kind, CertificateKind::NotShown);
  EXPECT_FALSE(certificate.accepted());
  options_.accept_not_shown = true;
  EXPECT_TRUE(judge(kBuckets, Effect::Order).accepted());
}

TEST_F(Controls, AnotherBatchNeedsConsent) {
  plan_pairs(80);
  options_.consent = false;
  EXPECT_FALSE(judge(kLarger, Effect::Optimisation).accepted());
}

TEST_F(Controls, ALargerBatchHasATimeToLoss) {
  learn_clearly();
  plan_pairs(300);
  options_.paired.samples_factor = 2;
  measure::Certificate certificate = judge(kLarger, Effect::Optimisation);
  ASSERT_TRUE(certificate.time_to_loss.has_value()) << certificate.reason;
  ASSERT_TRUE(certificate.time_to_loss->efficiency.has_value());
  EXPECT_LT(certificate.time_to_loss->efficiency->ratio, 1.1) << "half the updates";
  EXPECT_GT(certificate.time_to_loss->noise_scale, 0);
  EXPECT_LT(certificate.time_to_loss->predicted_efficiency, 1);
  EXPECT_GT(certificate.time_to_loss->predicted_efficiency, 0.5);
  set_speed(certificate, {3.0, {2.9, 3.1}, 8}, /*decides=*/false);
  EXPECT_NEAR(certificate.time_to_loss->ratio->ratio, 3 * certificate.time_to_loss->efficiency->ratio, 1e-9);
}

TEST_F(Controls, ByPairsWhatDoesHarmIsNotCertified) {
  plan_pairs(80);
  const std::map<std::string, Setting> harm = {
      {"no learning", {{"model.optim.lr", "0"}}},
      {"a hundred times the rate", {{"model.optim.lr", "1"}}},
      {"an eighth of the updates", {{"model.train_ds.batch_size", "64"}, {"model.train_ds.micro_batch_size", "64"}}}};
  for (const auto& [name, setting] : harm) {
    const auto certificate = judge(setting, Effect::Optimisation);
    EXPECT_FALSE(certificate.accepted()) << name << ": " << certificate.reason;
    if (name == "no learning") {
      EXPECT_LE(certificate.paired->pairs, 8) << "a clear case";
      EXPECT_EQ(certificate.kind, CertificateKind::Worse) << certificate.reason;
    }
  }
}

TEST_F(Controls, AnEpochOfOtherSamplesIsNotTheSameTraining) {
  plan_pairs(80);
  const auto certificate = judge({{"model.train_ds.min_duration", "6"}}, Effect::Optimisation);
  EXPECT_EQ(certificate.kind, CertificateKind::Different) << certificate.reason;
}

TEST_F(Controls, AJobThatLearnsNothingIsTooShortToJudge) {
  jobs_.source.tuned.push_back("model.optim.lr=0");
  plan_pairs(40);
  const auto certificate = judge(kBuckets, Effect::Order);
  EXPECT_EQ(certificate.kind, CertificateKind::NotShown);
  EXPECT_NE(certificate.reason.find("Too short to judge"), std::string::npos) << certificate.reason;
}

TEST_F(Controls, PairsShareSeedsAndReferenceRunsAreKept) {
  plan_pairs(40);
  const measure::HeldOutCurve& first = runs_->reference(1);
  const measure::HeldOutCurve same = runs_->candidate({}, 1), other = runs_->candidate({}, 2);
  EXPECT_EQ(first.losses, same.losses);
  EXPECT_NE(first.losses.front(), other.losses.front());
  EXPECT_EQ(&first, &runs_->reference(1));
  EXPECT_EQ(first.samples.front(), 0);
  EXPECT_EQ(first.samples.back(), runs_->run().samples);
}

TEST_F(Controls, WatchingTheNoiseChangesNoBit) {
  plan_pairs(40);
  EXPECT_EQ(runs_->make(runs_->run(), {}, 0, /*watch_noise=*/true, 0, 1).losses,
            runs_->make(runs_->run(), {}, 0, /*watch_noise=*/false, 0, 1).losses);
}

TEST_F(Controls, AShorterRunIsTheSameScheduleShorter) {
  jobs_.source.tuned.insert(jobs_.source.tuned.end(),
                            {"model.optim.sched.name=NoamAnnealing", "model.optim.sched.d_model=64",
                             "model.optim.sched.warmup_steps=100", "model.optim.lr=0.5"});
  plan_pairs(100);
  config::RequestSource source = jobs_.with({});
  const auto job = train::Job::read(registry_, source, jobs_.machine);
  const std::vector<std::string> words = shortened(*job, runs_->run(), 16);
  source.overrides.insert(source.overrides.end(), words.begin(), words.end());
  const auto shorter = train::Job::read(registry_, source, jobs_.machine);
  EXPECT_EQ(shorter->trainer().max_steps, 100);
  const auto task = job->build_task();
  const auto schedule = [&](const train::Job& of) {
    return make_loop_settings(of, *task, *of.build_loader(*task, train::Job::Part::Train, {})).schedule;
  };
  const train::Schedule whole = schedule(*job), part = schedule(*shorter);
  for (const int64_t step : {2, 5, 10, 20, 50, 99}) EXPECT_NEAR(part.at(step) / whole.at(10 * step), 1, 1e-6) << step;
}

TEST_F(Controls, TheNoiseScaleIsThatOfTheReference) {
  plan_pairs(80);
  EXPECT_TRUE(runs_->noise().empty());
  runs_->reference(0);
  const auto noise = runs_->noise();
  ASSERT_EQ(noise.size(), 8u);
  for (const measure::NoiseScale& one : noise) EXPECT_GT(one.noise, 0) << one.samples;
}

TEST_F(Controls, LearningRateFivePercentHigherIsRejected) {
  expect_rejected({"model.optim.lr=0.0105"}, Sabotage::None);
}
TEST_F(Controls, LossOverThePaddedLengthIsRejected) { expect_rejected({}, Sabotage::PaddedLength); }
TEST_F(Controls, OneSampleDroppedPerStepIsRejected) { expect_rejected({}, Sabotage::DropsASample); }
TEST_F(Controls, DropoutOffIsRejected) { expect_rejected({"model.dropout=0"}, Sabotage::None); }
TEST_F(Controls, UnweightedAccumulationIsRejected) { expect_rejected({}, Sabotage::Unweighted); }

}  // namespace
}  // namespace redline::tune
