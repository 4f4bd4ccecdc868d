#include "tune/search/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "doctor/testing/switches.h"
#include "doctor/verdict.h"

namespace redline::tune {
namespace {

using doctor::Observation;
using doctor::PlanModel;
using doctor::PlanShape;
using doctor::PlanShapeOf;
using ::testing::HasSubstr;

JobView speech_job(std::map<std::string, std::string> values = {}) {
  values.insert({{"batch", "2"}, {"micro_batch", "2"}, {"accumulation", "8"}, {"threads", "2"}, {"validation", "800"}});
  JobView job = doctor::example_view(values);
  job.task = "speech_ssl";
  job.batch_statistics = true;
  job.samples = 1000;
  job.max_steps = 400;
  job.counted = {{"model.optim.sched.warmup_steps", config::Counts::Steps, 200, false},
                 {"trainer.max_steps", config::Counts::Steps, 4000, false}};
  return job;
}

Observation observed() {
  Observation o;
  o.steps = 20;
  o.samples_per_step = 16;
  o.phases[static_cast<size_t>(measure::Phase::Forward)] = {0.3, 0.3, 0.3, 20};
  o.phases[static_cast<size_t>(measure::Phase::Backward)] = {0.5, 0.5, 0.5, 20};
  o.phases[static_cast<size_t>(measure::Phase::Wait)] = {0.1, 0.1, 0.1, 20};
  o.phases[static_cast<size_t>(measure::Phase::Other)] = {0.1, 0.1, 0.1, 20};
  o.stage_seconds_per_step = {0.02, 0.06, 0.01, 0.01};
  o.pieces = {0.02, 0.0003, 0.0003, 100};
  doctor::price_cadences(o, {0.001, 0, 2.0, 0.1}, {0.1, 0, 0.01, 0.01});
  return o;
}

MachineFacts two_cores() {
  MachineFacts machine;
  machine.allowed_cpus = 2;
  machine.gemm_fp32_gflops = 100;
  machine.gemm_bf16_gflops = 40;
  machine.gemm_fp16_gflops = 1;
  return machine;
}

const Candidate* find(const std::vector<Candidate>& all, const std::string& field, const std::string& to) {
  for (const Candidate& c : all)
    if (c.field == field && c.to == to) return &c;
  return nullptr;
}

std::vector<Candidate> candidates_of(const JobView& job, const Observation& o, const MachineFacts& machine,
                                     const Allow& allow, const PlanShapeOf& plan_shape) {
  return make_candidates(job, o, machine, allow, PlanModel(o, plan_shape));
}

std::optional<PlanShape> half_padding(const Setting&) { return PlanShape{0.5, 8, 16}; }

TEST(Candidates, ATaskWithBatchStatisticsNeedsConsentForItsMicroBatch) {
  const auto without = candidates_of(speech_job(), observed(), two_cores(), {}, half_padding);
  ASSERT_NE(find(without, "batch_size", "8 x 2"), nullptr);
  EXPECT_THAT(find(without, "batch_size", "8 x 2")->not_tried, HasSubstr("--allow optimisation"));
  const auto with = candidates_of(speech_job(), observed(), two_cores(), {false, false, true}, half_padding);
  const Candidate* c = find(with, "batch_size", "8 x 2");
  EXPECT_EQ(c->not_tried, "");
  EXPECT_EQ(c->effect, config::Effect::Optimisation);
  EXPECT_EQ(find(with, "micro_batch_size", "8"), nullptr);
  // A step of 16 stays one of 16 when it is split anyway; unsplit, it may grow.
  EXPECT_EQ(find(with, "batch_size", "4 x 8"), nullptr);
  JobView unsplit = speech_job();
  unsplit.accumulate = 1;
  const auto larger = candidates_of(unsplit, observed(), two_cores(), {false, false, true}, half_padding);
  EXPECT_NE(find(larger, "batch_size", "8"), nullptr);
}

TEST(Candidates, ABatchIsNotTriedWhereItWouldMoveWhatWasTyped) {
  JobView job = speech_job();
  job.accumulate = 1;
  job.pinned = {"trainer.max_steps"};
  const auto all = candidates_of(job, observed(), two_cores(), {false, false, true}, half_padding);
  EXPECT_THAT(find(all, "batch_size", "8")->not_tried, HasSubstr("trainer.max_steps"));
  // The same step cut otherwise has as many of them.
  job.accumulate = 8;
  const auto split = candidates_of(job, observed(), two_cores(), {false, false, true}, half_padding);
  EXPECT_EQ(find(split, "batch_size", "8 x 2")->not_tried, "");
}

TEST(Candidates, PrecisionIsJudgedByTheMachine) {
  const auto all = candidates_of(speech_job(), observed(), two_cores(), {true, false, false}, half_padding);
  EXPECT_LT(find(all, "precision", "bf16-mixed")->predicted_gain, 0);
  EXPECT_TRUE(find(all, "precision", "bf16-mixed")->not_tried.empty());
  EXPECT_THAT(find(all, "precision", "16-mixed")->not_tried, HasSubstr("1 instead of 100 GFLOP/s"));
}

TEST(Candidates, WhatWasTypedIsKept) {
  JobView job = speech_job();
  job.pinned = {"model.train_ds.num_workers", "model.train_ds.batch_size"};
  const auto all = candidates_of(job, observed(), two_cores(), {true, true, true}, half_padding);
  for (const Candidate& c : all) {
    EXPECT_EQ(c.values.count("model.train_ds.num_workers"), 0u) << c.name;
    EXPECT_EQ(c.values.count("model.train_ds.batch_size"), 0u) << c.name;
  }
}

TEST(Candidates, APrecisionMakesItemsCheaperAndPiecesDearer) {
  const auto plan = [](const Setting& setting) -> std::optional<PlanShape> {
    const auto rows = setting.find("model.train_ds.micro_batch_size");
    return PlanShape{0.5, rows == setting.end() ? 8.0 : 16.0 / std::stod(rows->second), 16};
  };
  JobView job = speech_job();
  job.batch_statistics = false;
  MachineFacts machine = two_cores();
  machine.gemm_bf16_gflops = 200;
  const Allow allow{true, false, false};
  const auto hoped = candidates_of(job, observed(), machine, allow, plan);
  EXPECT_TRUE(find(hoped, "precision", "bf16-mixed")->unpredicted);  // twice the products, but nothing was raced
  EXPECT_EQ(find(hoped, "precision", "bf16-mixed")->predicted_gain, 0);
  ASSERT_TRUE(other_precision(job, machine, allow).has_value());
  EXPECT_EQ(other_precision(job, machine, allow)->at("trainer.precision"), "bf16-mixed");
  EXPECT_FALSE(other_precision(job, two_cores(), allow));  // slower here
  EXPECT_FALSE(other_precision(job, machine, {}));         // no consent
  // A machine too busy to be measured: the units say what is worth a race, and nothing is predicted from rates of 0.
  MachineFacts unmeasured;
  unmeasured.allowed_cpus = 2;
  EXPECT_FALSE(other_precision(job, unmeasured, allow));
  unmeasured.avx512_bf16 = true;
  EXPECT_EQ(other_precision(job, unmeasured, allow)->at("trainer.precision"), "bf16-mixed");
  const auto by_units = candidates_of(job, observed(), unmeasured, allow, plan);
  EXPECT_TRUE(find(by_units, "precision", "bf16-mixed")->unpredicted);
  EXPECT_TRUE(find(by_units, "precision", "bf16-mixed")->not_tried.empty());
  EXPECT_THAT(find(by_units, "precision", "16-mixed")->not_tried, HasSubstr("no units"));
  // As it is, and in larger pieces: both are predicted as they were raced, by what an item and a piece cost then.
  Observation o = observed();
  const Setting larger = *larger_pieces(job), precise = *other_precision(job, machine, allow);
  o.calibration.precise = {precise, 1.1};
  EXPECT_NEAR(find(candidates_of(job, o, machine, allow, plan), "precision", "bf16-mixed")->predicted_gain, 0.1, 1e-9);
  o.calibration.larger = {larger, 1.3};
  o.calibration.larger_precise = {combine(larger, precise), 1.5};
  const auto all = candidates_of(job, o, machine, allow, plan);
  const Candidate* alone = find(all, "precision", "bf16-mixed");
  EXPECT_TRUE(alone->shapes_plan);
  EXPECT_NEAR(alone->predicted_gain, 0.1, 1e-9);
  const PlanModel model(o, plan);
  EXPECT_NEAR(model.gain(combine(larger, precise)), 1.3 * 1.5 - 1, 1e-9);
  // What lies between them lies between.
  const Setting two = {{"model.train_ds.micro_batch_size", "4"}};
  const double between = (1 + model.gain(combine(two, precise))) / (1 + model.gain(two)) - 1;
  EXPECT_GT(between, 0.1);
  EXPECT_LT(between, 0.5);
  // Its own race says how well it is known; another setting is known less well.
  o.calibration.precise->deviation = 0.01;
  EXPECT_LT(PlanModel(o, plan).deviation(precise), PlanModel(o, plan).deviation(combine(two, precise)));
}

TEST(Candidates, LargerPiecesThatWereRacedArePredictedAsTheyWere) {
  const auto plan = [](const Setting& setting) -> std::optional<PlanShape> {
    const auto rows = setting.find("model.train_ds.micro_batch_size");
    return PlanShape{0.5, rows == setting.end() ? 8.0 : 16.0 / std::stod(rows->second), 16};
  };
  JobView job = speech_job();
  job.batch_statistics = false;
  for (const double ratio : {1.6, 0.9}) {
    Observation o = observed();
    o.calibration.larger = {*larger_pieces(job), ratio};
    const auto all = candidates_of(job, o, two_cores(), {}, plan);
    EXPECT_NEAR(find(all, "micro_batch_size", "8")->predicted_gain, ratio - 1, 1e-9);
    const double most = find(all, "micro_batch_size", "16")->predicted_gain;
    EXPECT_EQ(most > ratio - 1, ratio > 1) << most;
    // Larger pieces that are slower do not say that smaller ones are faster.
    const double least = find(all, "micro_batch_size", "1")->predicted_gain;
    if (ratio > 1) {
      EXPECT_LT(least, -0.1);
    } else {
      EXPECT_NEAR(least, 0, 1e-9);
    }
  }
  job.bounded_by_length = true;
  EXPECT_FALSE(larger_pieces(job));
}

TEST(Candidates, LargerPiecesKeepTheStepWhereItIsSplitAndGrowItWhereNot) {
  const Setting split = *larger_pieces(speech_job());
  EXPECT_EQ(split.at("model.train_ds.batch_size"), "8");
  EXPECT_EQ(split.at("trainer.accumulate_grad_batches"), "2");
  JobView unsplit = speech_job();
  unsplit.accumulate = 1;
  const Setting grown = *larger_pieces(unsplit);
  EXPECT_EQ(grown.at("model.train_ds.micro_batch_size"), "8");
  EXPECT_EQ(grown.at("trainer.accumulate_grad_batches"), "1");
  JobView micro = speech_job();
  micro.batch_size = 32, micro.micro_batch_size = 4, micro.accumulate = 1;
  EXPECT_EQ(larger_pieces(micro)->at("model.train_ds.batch_size"), "32");
  EXPECT_EQ(larger_pieces(micro)->at("model.train_ds.micro_batch_size"), "16");
}

TEST(Candidates, BucketsAreRacedWhereTheyMayBeUsed) {
  JobView job = speech_job();
  EXPECT_EQ(in_buckets(job, {false, true, false}, {{"a", "1"}})->size(), 3u);
  EXPECT_FALSE(in_buckets(job, {}, {}));  // no consent to another order
  job.computes_padding = false;
  EXPECT_FALSE(in_buckets(job, {false, true, false}, {}));
}

TEST(Candidates, ThreadsAreWorthWhatTheParallelShareSays) {
  Observation o = observed();
  o.calibration.parallel_share = 0.0;
  const auto all = candidates_of(speech_job(), o, two_cores(), {}, half_padding);
  EXPECT_NEAR(find(all, "num_workers x intra_op_threads", "0 x 1")->predicted_gain, 0, 0.03);
}

// One list of switches and predictions: what the doctor advises is what the tuner races.
TEST(Candidates, DoctorAndTunerSayTheSame) {
  struct Case {
    const char* name;
    JobView job;
    Observation seen;
    MachineFacts machine;
  };
  const Allow everything{true, true, true};
  std::vector<Case> table = {{"speech", speech_job(), observed(), two_cores()}};
  table.push_back({"without batch statistics", speech_job(), observed(), two_cores()});
  table.back().job.batch_statistics = false;
  table.push_back({"many cores", speech_job({{"workers", "2"}}), observed(), two_cores()});
  table.back().machine.allowed_cpus = 32;
  table.push_back(
      {"one core, bucketed", speech_job({{"bucketing", "true"}, {"buckets", "4"}}), observed(), two_cores()});
  table.back().machine.allowed_cpus = 1;
  table.push_back({"padded, bf16 fast", speech_job({{"precision", "16-mixed"}}), observed(), two_cores()});
  table.back().seen.padding_share = 0.6;
  table.back().machine.gemm_bf16_gflops = 900;
  table.push_back({"cadences", speech_job({{"log", "1"}, {"checkpoint", "10"}}), observed(), two_cores()});
  doctor::price_cadences(table.back().seen, {0.05, 0.3, 2, 1}, {1, 0.1, 0.01, 0.1});
  table.push_back({"images, cached on disk", speech_job({{"cache", "disk"}}), observed(), two_cores()});
  table.back().job.images = true, table.back().job.ragged = false, table.back().job.supports_channels_last = true;
  table.push_back(
      {"by length, validating each epoch", speech_job({{"validation", "0.5"}}), observed(), MachineFacts()});
  table.back().job.bounded_by_length = true;
  for (const Case& c : table) {
    const auto plan = doctor::assumed_plan(c.job, c.seen);
    std::map<Setting, double> raced, advised;
    for (const Candidate& candidate : make_candidates(c.job, c.seen, c.machine, everything, PlanModel(c.seen, plan)))
      if (!candidate.values.empty() && !candidate.not_measurable) raced[candidate.values] = candidate.predicted_gain;
    for (const Candidate& candidate : doctor::diagnose(c.job, c.seen, {}, c.machine, plan).suggestions)
      advised[candidate.values] = candidate.predicted_gain;
    EXPECT_GT(advised.size(), 3u) << c.name;
    EXPECT_EQ(advised, raced) << c.name;
  }
}

TEST(Allow, KnowsThreeWords) {
  const Allow allow = parse_allow("order, optimisation");
  EXPECT_TRUE(allow.order && allow.optimisation && !allow.numerics);
  EXPECT_THROW(parse_allow("everything"), ConfigError);
}

}  // namespace
}  // namespace redline::tune
