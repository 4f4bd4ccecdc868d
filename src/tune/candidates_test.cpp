#include "tune/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace redline::tune {
namespace {

using ::testing::HasSubstr;

JobView speech_job() {
  JobView job;
  job.task = "speech_ssl";
  job.batch_size = 2;
  job.micro_batch_size = 2;
  job.accumulate = 8;
  job.batch_statistics = true;
  job.threads = 2;
  job.samples = 1000;
  job.max_steps = 400;
  job.val_check_batches = 800;
  job.warmup_steps = 200;
  return job;
}

Observed observed() {
  Observed o;
  o.seen.steps = 20;
  o.seen.step_seconds = 1.0;
  o.seen.samples_per_step = 16;
  o.seen.samples_per_second = 16;
  o.seen.phases[static_cast<size_t>(measure::Phase::Forward)] = {0.3, 0.3, 0.3, 20};
  o.seen.phases[static_cast<size_t>(measure::Phase::Backward)] = {0.5, 0.5, 0.5, 20};
  o.seen.phases[static_cast<size_t>(measure::Phase::Wait)] = {0.1, 0.1, 0.1, 20};
  o.seen.stage_seconds_per_step = {0.02, 0.06, 0.01, 0.01};
  o.items_per_sample = 100;
  o.micro_batch_seconds = 0.02;
  o.item_seconds = o.padding_seconds = 0.0003;
  o.costs = {0.001, 0, 2.0, 0.1};
  o.rates = {0.1, 0, 0.01, 0.01};
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

std::vector<Candidate> candidates_of(const JobView& job, const Observed& o, const MachineFacts& machine,
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

TEST(Candidates, WithoutBatchStatisticsAStepIsSplitFreely) {
  JobView job = speech_job();
  job.batch_statistics = false;
  const auto all = candidates_of(job, observed(), two_cores(), {}, half_padding);
  for (const char* rows : {"1", "4", "8", "16"}) {
    const Candidate* c = find(all, "micro_batch_size", rows);
    ASSERT_NE(c, nullptr) << rows;
    EXPECT_EQ(c->effect, config::Effect::Numerics);
    EXPECT_EQ(c->not_tried, "");
    EXPECT_EQ(c->values.size(), 1u);
  }
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

TEST(Candidates, WorkersAndThreadsMoveTogetherWithinTheCores) {
  const auto all = candidates_of(speech_job(), observed(), two_cores(), {}, half_padding);
  EXPECT_NE(find(all, "num_workers", "1"), nullptr);
  EXPECT_NE(find(all, "num_workers", "2"), nullptr);
  EXPECT_EQ(find(all, "num_workers", "4"), nullptr);
  const Candidate* both = find(all, "num_workers x intra_op_threads", "1 x 1");
  ASSERT_NE(both, nullptr);
  EXPECT_LT(both->predicted_gain, 0);
  // Free loading can gain a tenth here, no more: that is the ceiling of the number of workers alone.
  EXPECT_LT(find(all, "num_workers", "1")->ceiling, 0.2);
}

TEST(Candidates, PrecisionIsJudgedByTheMachine) {
  const auto all = candidates_of(speech_job(), observed(), two_cores(), {true, false, false}, half_padding);
  EXPECT_LT(find(all, "precision", "bf16-mixed")->predicted_gain, 0);
  EXPECT_TRUE(find(all, "precision", "bf16-mixed")->not_tried.empty());
  EXPECT_THAT(find(all, "precision", "16-mixed")->not_tried, HasSubstr("1 instead of 100 GFLOP/s"));
}

TEST(Candidates, WhatThisMachineCannotShowIsSaid) {
  const auto all = candidates_of(speech_job(), observed(), two_cores(), {}, half_padding);
  for (const char* field : {"pin_memory", "is_tarred", "compile"}) {
    const Candidate* c = find(all, field, "true");
    ASSERT_NE(c, nullptr) << field;
    EXPECT_TRUE(c->not_measurable);
    EXPECT_FALSE(c->not_tried.empty());
  }
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

TEST(Candidates, PaddingThatGoesIsPredictedAsTime) {
  const auto plan = [](const Setting& setting) -> std::optional<PlanShape> {
    return PlanShape{setting.count("model.train_ds.use_bucketing") ? 0.1 : 0.5, 8, 16};
  };
  const auto all = candidates_of(speech_job(), observed(), two_cores(), {false, true, false}, plan);
  // 16 x 100 items: 3200 padded at 0.3 ms is 0.96 s, with a tenth of padding 1778 is 0.53 s; 8 micro-batches take 0.16.
  // The step was seen to take 0.8 s in forward and backward where the fit says 1.12.
  const double before = 1.0 + 0.001 * 0.1 + 2.0 * 0.01 + 0.1 * 0.01;
  const double after = before - 0.8 + 0.8 * (0.16 + 1600 / 0.9 * 0.0003) / (0.16 + 0.96);
  EXPECT_NEAR(find(all, "num_buckets", "8")->predicted_gain, before / after - 1, 1e-6);
}

TEST(Candidates, CadencesAreSolvedFromTheirCost) {
  JobView job = speech_job();
  job.log_every_n_steps = 1;
  Observed o = observed();
  o.costs.log = 0.05;
  o.rates.log = 1;
  const auto all = cadence_candidates(job, o, 0.01);
  const Candidate* log = find(all, "log_every_n_steps", "5");
  ASSERT_NE(log, nullptr);
  const Candidate* validation = find(all, "val_check_interval", "1600");
  ASSERT_NE(validation, nullptr);  // 2 s in 100 steps of 1 s: half as often is 1 %
  EXPECT_NEAR(validation->predicted_gain, 0.01 / 1.06, 1e-3);
  // However dear, a run of 400 steps in 8 batches each keeps two validations; one that has no more keeps what it has.
  o.costs.validate = 100;
  EXPECT_NE(find(cadence_candidates(job, o, 0.01), "val_check_interval", "1600"), nullptr);
  job.max_epochs = 4, job.steps_per_epoch = 50;
  EXPECT_EQ(find(cadence_candidates(job, o, 0.01), "val_check_interval", "1600"), nullptr);
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
  Observed o = observed();
  o.larger = {*larger_pieces(job), 1.3};
  o.precise = {combine(*larger_pieces(job), *other_precision(job, machine, allow)), 1.5};
  const auto all = candidates_of(job, o, machine, allow, plan);
  const Candidate* precise = find(all, "precision", "bf16-mixed");
  ASSERT_NE(precise, nullptr);
  EXPECT_TRUE(precise->shapes_plan);
  // As raced on top of larger pieces; alone less, since the pieces are not cheaper.
  const PlanModel model(o, plan);
  EXPECT_NEAR(model.gain(o.precise->setting), 1.3 * 1.5 - 1, 1e-9);
  EXPECT_GT(precise->predicted_gain, 0.1);
  EXPECT_LT(precise->predicted_gain, 0.5);
  // Weights that are rounded for every piece: the same race, and less or nothing left in pieces four times smaller.
  const auto alone = [&](double cast_seconds) {
    o.cast_seconds = cast_seconds;
    const PlanModel casting(o, plan);
    EXPECT_NEAR(casting.gain(o.precise->setting), 1.3 * 1.5 - 1, 1e-9);
    return casting.gain(*other_precision(job, machine, allow));
  };
  EXPECT_LT(alone(0.01), precise->predicted_gain);
  EXPECT_GT(alone(-0.01), precise->predicted_gain);
  EXPECT_LT(alone(0.05), 0);
}

TEST(Candidates, WeightsAreRoundedForEveryPieceOfAMixedPrecisionOnly) {
  JobView job;
  const Setting full = {{"trainer.precision", "32-true"}}, mixed = {{"trainer.precision", "bf16-mixed"}};
  EXPECT_EQ(casts_added(job, mixed), 1);
  job.precision = "16-mixed";
  EXPECT_EQ(casts_added(job, full), -1);
  EXPECT_EQ(casts_added(job, mixed), 0);
}

TEST(Candidates, AnOptionWithoutARuleIsTriedTheOtherWayRound) {
  JobView job = speech_job();
  job.toggles = {{"model.fused_kernels", true, config::Effect::Numerics},
                 {"model.cache_features", false, config::Effect::Nothing},
                 {"model.sorts", false, config::Effect::Order}};
  const auto all = candidates_of(job, observed(), two_cores(), {}, {});
  const Candidate* off = find(all, "fused_kernels", "false");
  ASSERT_NE(off, nullptr);
  EXPECT_TRUE(off->late && off->unpredicted && off->not_tried.empty());
  const Candidate* on = find(all, "cache_features", "true");
  ASSERT_NE(on, nullptr);
  EXPECT_FALSE(on->late);
  EXPECT_EQ(on->values.at("model.cache_features"), "true");
  EXPECT_THAT(find(all, "sorts", "true")->not_tried, HasSubstr("--allow order"));
}

measure::StepRow step_row(int micro_batches, double items, double padded_items, double seconds) {
  measure::StepRow row;
  row.micro_batches = micro_batches;
  row.samples = 16;
  row.items = static_cast<int64_t>(items);
  row.padded_items = static_cast<int64_t>(padded_items);
  row.phase_ns[static_cast<size_t>(measure::Phase::Forward)] = static_cast<int64_t>(1e9 * seconds);
  return row;
}

TEST(Candidates, TwoSizesTellThePieceFromItsItemsAndAHeldUpStepIsLeftOut) {
  std::vector<measure::StepRow> rows;
  for (int i = 0; i < 16; ++i) {
    const double piece_items = i < 12 ? 200 + i % 3 : 800 + i % 3;
    const int pieces = i < 12 ? 8 : 2;
    const double held_up = i == 5 ? 3.0 : 1.0;
    rows.push_back(
        step_row(pieces, pieces * piece_items, pieces * piece_items, held_up * pieces * (0.01 + 0.0002 * piece_items)));
  }
  Observed o;
  fit_micro_batches(rows, true, o);
  EXPECT_NEAR(o.micro_batch_seconds, 0.01, 1e-4);
  EXPECT_NEAR(o.item_seconds, 0.0002, 1e-6);
}

TEST(Candidates, PaddingThatCostsNothingIsSeen) {
  std::vector<measure::StepRow> rows;
  for (int i = 0; i < 30; ++i) {
    const int pieces = i < 20 ? 8 : 2;
    const double items = 16 * (90 + i % 7), padding = (i < 20 ? 100 : 400) * (1 + i % 5);
    rows.push_back(step_row(pieces, items, items + padding, 0.01 * pieces + 0.0002 * items));
  }
  Observed o;
  fit_micro_batches(rows, true, o);
  EXPECT_NEAR(o.micro_batch_seconds, 0.01, 1e-4);
  EXPECT_NEAR(o.item_seconds, 0.0002, 1e-6);
  EXPECT_NEAR(o.padding_seconds, 0.0, 1e-6);
  // Ten steps settle nothing, but a task that packs says so.
  fit_micro_batches(std::span(rows).first(10), false, o);
  EXPECT_EQ(o.padding_seconds, 0.0);
}

TEST(Candidates, TheFixedCostOfAMicroBatchIsFitted) {
  std::vector<measure::StepRow> rows;
  for (int i = 0; i < 10; ++i) {
    const double padded = 4 * (100 + 20 * i);
    rows.push_back(step_row(4, padded / 2, padded, 4 * 0.03 + 0.0005 * padded));
  }
  Observed o;
  fit_micro_batches(rows, true, o);
  EXPECT_NEAR(o.micro_batch_seconds, 0.03, 1e-4);
  EXPECT_NEAR(o.item_seconds, 0.0005, 1e-6);
}

TEST(Candidates, LargerPiecesThatWereRacedArePredictedAsTheyWere) {
  const auto plan = [](const Setting& setting) -> std::optional<PlanShape> {
    const auto rows = setting.find("model.train_ds.micro_batch_size");
    return PlanShape{0.5, rows == setting.end() ? 8.0 : 16.0 / std::stod(rows->second), 16};
  };
  JobView job = speech_job();
  job.batch_statistics = false;
  for (const double ratio : {1.6, 0.9}) {
    Observed o = observed();
    o.larger = {*larger_pieces(job), ratio};
    const auto all = candidates_of(job, o, two_cores(), {}, plan);
    EXPECT_NEAR(find(all, "micro_batch_size", "8")->predicted_gain, ratio - 1, 1e-9);
    const double most = find(all, "micro_batch_size", "16")->predicted_gain;
    EXPECT_EQ(most > ratio - 1, ratio > 1) << most;
  }
  job.bounded_by_length = true;
  EXPECT_FALSE(larger_pieces(job));
}

TEST(Candidates, BucketsThatWereRacedSayWhatPaddingCosts) {
  // Per sample 100 items of 1 ms and 5 ms per piece; padding costs 0.3 ms.
  const auto cost = [](double pieces, double padding) {
    return SampleCost{pieces, 100, padding, 5e-3 * pieces + 100e-3 + 0.3e-3 * padding};
  };
  Observed o;
  o.item_seconds = o.padding_seconds = 1e-3;  // a fit that took padding for items
  anchor_micro_batches(cost(0.5, 20), cost(0.125, 80), cost(0.125, 10), o);
  EXPECT_NEAR(o.micro_batch_seconds, 5e-3, 1e-9);
  EXPECT_NEAR(o.item_seconds, 1e-3, 1e-9);
  EXPECT_NEAR(o.padding_seconds, 0.3e-3, 1e-9);
  anchor_micro_batches(cost(0.5, 20), cost(0.125, 80), cost(0.125, 79), o);  // nothing went: nothing is learnt
  EXPECT_NEAR(o.padding_seconds, 0.3 * o.item_seconds, 1e-9);
  JobView job = speech_job();
  EXPECT_EQ(in_buckets(job, {false, true, false}, {{"a", "1"}})->size(), 3u);
  EXPECT_FALSE(in_buckets(job, {}, {}));  // no consent to another order
  job.computes_padding = false;
  EXPECT_FALSE(in_buckets(job, {false, true, false}, {}));
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

TEST(Candidates, TheParallelShareComesFromTwoNumbersOfThreads) {
  // 0.2 s of loading, then 1.0 s of which 0.6 s are shared by the threads.
  const auto seconds = [](int threads) { return 0.2 + 0.4 + 0.6 / threads; };
  for (const auto& [job, other] : {std::pair{2, 1}, {1, 4}, {8, 1}, {8, 2}})
    EXPECT_NEAR(parallel_share(seconds(job), seconds(other), 0.2, job, other), 0.6, 1e-9) << job << other;
  EXPECT_LT(parallel_share(1.2, 1.0, 0.1, 2, 1), 0);  // threads that only get in each other's way
  Observed o = observed();
  o.parallel_share = 0.0;
  const auto all = candidates_of(speech_job(), o, two_cores(), {}, half_padding);
  EXPECT_NEAR(find(all, "num_workers x intra_op_threads", "0 x 1")->predicted_gain, 0, 0.03);
}

TEST(Allow, KnowsThreeWords) {
  const Allow allow = parse_allow("order, optimisation");
  EXPECT_TRUE(allow.order && allow.optimisation && !allow.numerics);
  EXPECT_THROW(parse_allow("everything"), ConfigError);
}

}  // namespace
}  // namespace redline::tune
