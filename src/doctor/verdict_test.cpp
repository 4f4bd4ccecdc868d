#include "doctor/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/rules/predict.h"

namespace redline::doctor {
namespace {

using measure::Phase;
using measure::Stage;

// An observation of a 100 ms step from shares of its phases.
Observation make_seen(std::vector<std::pair<Phase, double>> shares, double padding = 0) {
  Observation seen;
  seen.steps = 100;
  seen.step_seconds = 0.1;
  seen.samples_per_step = 8;
  seen.padding_share = padding;
  double rest = 1.0;
  for (const auto& [phase, share] : shares) {
    auto& summary = seen.phases[static_cast<size_t>(phase)];
    summary = {share * 0.1, share, share * 0.1, 100};
    rest -= share;
  }
  seen.phases[static_cast<size_t>(Phase::Other)].share += rest;
  return seen;
}

MachineFacts make_machine() {
  MachineFacts machine;
  machine.allowed_cpus = 2;
  machine.memory_limit_bytes = uint64_t{24} << 30;
  return machine;
}

TEST(Verdict, TableOfRuns) {
  struct Case {
    const char* name;
    Observation seen;
    JobView job;
    Limit limit;
    const char* detail;
  };
  JobView plain;
  plain.workers = 1;
  JobView crowded;
  crowded.workers = 16;
  Observation decoding = make_seen({{Phase::Wait, 0.4}, {Phase::Forward, 0.3}, {Phase::Backward, 0.29}});
  decoding.stage_seconds_per_step = {0.005, 0.080, 0.004, 0.002};
  Observation reading = decoding;
  reading.stage_seconds_per_step = {0.080, 0.005, 0.004, 0.002};
  Observation thin = decoding;
  thin.stage_seconds_per_step = {0.030, 0.032, 0.030, 0.004};
  Observation crowd = make_seen({{Phase::Forward, 0.5}, {Phase::Backward, 0.48}});
  crowd.stage_seconds_per_step = {0.0, 0.08, 0.0, 0.0};
  crowd.step_spread = 0.8;
  Observation full = make_seen({{Phase::Forward, 0.4}, {Phase::Backward, 0.38}, {Phase::Optimiser, 0.2}});
  full.peak_bytes = int64_t{23} << 30;
  const Case cases[] = {
      {"decode", decoding, plain, Limit::Data, "decode"},
      {"read", reading, plain, Limit::Data, "read"},
      {"worker count", thin, plain, Limit::Data, "worker count"},
      {"compute", make_seen({{Phase::Forward, 0.4}, {Phase::Backward, 0.57}}), plain, Limit::Compute, "backward"},
      {"validation", make_seen({{Phase::Forward, 0.4}, {Phase::Backward, 0.4}, {Phase::Validate, 0.18}}), plain,
       Limit::Cadence, "validate"},
      {"logging",
       make_seen({{Phase::Forward, 0.4}, {Phase::Backward, 0.4}, {Phase::Log, 0.15}, {Phase::Validate, 0.03}}), plain,
       Limit::Cadence, "log"},
      {"padding", make_seen({{Phase::Forward, 0.45}, {Phase::Backward, 0.5}}, 0.5), plain, Limit::Padding, "padding"},
      {"small batch", make_seen({{Phase::Forward, 0.3}, {Phase::Backward, 0.3}, {Phase::Optimiser, 0.35}}), plain,
       Limit::SmallBatch, "batch_size"},
      {"crowded", crowd, crowded, Limit::Oversubscribed, "workers"},
      {"memory", full, plain, Limit::Memory, "memory"},
  };
  for (const Case& c : cases) {
    const Diagnosis diagnosis = diagnose(c.job, c.seen, {}, make_machine());
    EXPECT_EQ(diagnosis.limit, c.limit) << c.name << ": " << diagnosis.sentence;
    EXPECT_EQ(diagnosis.detail, c.detail) << c.name;
    EXPECT_GT(diagnosis.confidence, 0.4) << c.name;
  }
}

// A gain is named as far as it is sure: the same figures with wide errors are no verdict.
TEST(Verdict, WhatIsNotSureIsNotNamed) {
  struct Case {
    const char* name;
    Limit limit;
    Observation clear, unsure;
    JobView job;
  };
  const auto with_errors = [](Observation seen, double of_share) {
    for (auto& phase : seen.phases) phase.share_error = of_share * phase.share;
    return seen;
  };
  const auto with_costs = [](Observation seen, const CostFit& costs) {
    seen.costs = costs;
    return seen;
  };
  const Observation waits = make_seen({{Phase::Wait, 0.1}, {Phase::Forward, 0.5}, {Phase::Backward, 0.39}});
  const Observation saves = make_seen({{Phase::Checkpoint, 0.1}, {Phase::Forward, 0.5}, {Phase::Backward, 0.39}});
  const Observation updates = make_seen({{Phase::Optimiser, 0.2}, {Phase::Forward, 0.4}, {Phase::Backward, 0.39}});
  const Observation computes = make_seen({{Phase::Forward, 0.45}, {Phase::Backward, 0.54}}, 0.25);
  Observation few_padded = computes;
  few_padded.padding_share = 0.1;
  JobView bucketed;
  bucketed.buckets = true;
  JobView crowded;
  crowded.threads = crowded.workers = 2;
  Observation shared = computes;  // the loader's work comes with every sample, and no core is spare for it
  shared.stage_seconds_per_step[static_cast<size_t>(Stage::Decode)] = 0.02;
  const Case cases[] = {
      {"one hiccup of the loader", Limit::Data, with_errors(waits, 0.1), with_errors(waits, 0.9), {}},
      {"one checkpoint", Limit::Cadence, with_errors(saves, 0.1), with_errors(saves, 0.9), {}},
      {"optimiser", Limit::SmallBatch, with_errors(updates, 0.1), with_errors(updates, 0.9), {}},
      {"fixed cost",
       Limit::SmallBatch,
       with_costs(computes, {true, 0.0, 0.01, 0.3, 0.02}),
       with_costs(computes, {true, 0.0, 0.01, 0.3, 0.14}),
       {}},
      {"fixed cost, or a sample's",
       Limit::SmallBatch,
       with_costs(computes, {true, 0.0, 0.01, 0.3, 0.01}),
       with_costs(computes, {true, 0.0, 0.01, 0.12, 0.01}),
       {}},
      {"fixed cost, or the workers'", Limit::SmallBatch, with_costs(shared, {true, 0.0, 0.01, 0.6, 0.02}),
       with_costs(shared, {true, 0.0, 0.01, 0.2, 0.02}), crowded},
      {"padding", Limit::Padding, with_costs(computes, {true, 0.25, 0.02, 0.0, 0.01}),
       with_costs(computes, {true, 0.25, 0.11, 0.0, 0.01}), bucketed},
      {"padding dearer than items", Limit::Padding, with_costs(computes, {true, 0.23, 0.01, 0.0, 0.01}),
       with_costs(few_padded, {true, 0.23, 0.01, 0.0, 0.01}), bucketed},
  };
  for (const Case& c : cases) {
    const Diagnosis clear = diagnose(c.job, c.clear, {}, make_machine());
    EXPECT_EQ(clear.limit, c.limit) << c.name << ": " << clear.sentence;
    EXPECT_GE(clear.scores[0].at_least(), 0.02) << c.name;
    EXPECT_LE(clear.scores[0].at_least(), clear.scores[0].gain) << c.name;
    const Diagnosis unsure = diagnose(c.job, c.unsure, {}, make_machine());
    EXPECT_TRUE(unsure.limit == Limit::Compute || unsure.limit == Limit::Balanced) << c.name << ": " << unsure.sentence;
  }
  const std::string sentence = diagnose({}, cases[0].unsure, {}, make_machine()).sentence;
  EXPECT_THAT(sentence, testing::HasSubstr("Perhaps it is data-bound"));
  EXPECT_THAT(sentence, testing::HasSubstr("no more than 0 % is sure"));
}

// A larger gain that is not sure does not stand in the way of a smaller one that is.
TEST(Verdict, TheLargestSureGainIsNamed) {
  Observation seen = make_seen({{Phase::Wait, 0.1}, {Phase::Log, 0.2}, {Phase::Forward, 0.3}, {Phase::Backward, 0.39}});
  seen.phases[static_cast<size_t>(Phase::Log)].share_error = 0.15;
  seen.phases[static_cast<size_t>(Phase::Wait)].share_error = 0.01;
  const Diagnosis found = diagnose({}, seen, {}, make_machine());
  EXPECT_EQ(found.limit, Limit::Data) << found.sentence;
  EXPECT_EQ(found.scores[1].limit, Limit::Cadence);
  EXPECT_GT(found.scores[1].gain, found.scores[0].gain);
}

TEST(Verdict, AFullMemoryIsNoLimitWhereMoreWouldGainNothing) {
  Observation full = make_seen({{Phase::Forward, 0.5}, {Phase::Backward, 0.48}});
  full.peak_bytes = int64_t{23} << 30;
  EXPECT_EQ(diagnose({}, full, {}, make_machine()).limit, Limit::Compute);
}

TEST(Verdict, NoStepsNoJudgement) {
  const Diagnosis diagnosis = diagnose({}, {}, {}, make_machine());
  EXPECT_EQ(diagnosis.limit, Limit::Unknown);
  EXPECT_THAT(diagnosis.sentence, testing::HasSubstr("at least 20 steps"));
}

TEST(Verdict, ACeilingOverrulesTheShareOfWaiting) {
  // Workers 0: waiting is 30 %, but a replayed batch gains nothing: whatever waits is not the loader.
  const Observation seen = make_seen({{Phase::Wait, 0.3}, {Phase::Forward, 0.35}, {Phase::Backward, 0.34}});
  std::vector<ExperimentBlock> blocks;
  for (int b = 0; b < 6; ++b) {
    blocks.push_back({ExperimentKind::AsIs, b, 0.0125});
    blocks.push_back({ExperimentKind::FreeLoader, b, 0.0124});
  }
  const Diagnosis diagnosis = diagnose({}, seen, ceilings(blocks), make_machine());
  EXPECT_NE(diagnosis.limit, Limit::Data);
}

TEST(Verdict, ANoisyRaceNamesNoLoaderThatHasNothingToGive) {
  Observation seen = make_seen({{Phase::Wait, 0.01}, {Phase::Forward, 0.33}, {Phase::Backward, 0.65}});
  seen.stage_seconds_per_step[static_cast<size_t>(measure::Stage::Transform)] = 0.02 * seen.step_seconds;
  std::vector<ExperimentBlock> blocks;
  for (int b = 0; b < 6; ++b) {
    blocks.push_back({ExperimentKind::AsIs, b, b % 2 == 0 ? 0.0125 : 0.0150});
    blocks.push_back({ExperimentKind::FreeLoader, b, b % 3 == 0 ? 0.0128 : 0.0110});
  }
  const auto noisy = ceilings(blocks);
  ASSERT_GT(noisy[0].gain(), 0.05);
  ASSERT_LE(noisy[0].speed.interval.low, 1.0);
  EXPECT_EQ(diagnose({}, seen, noisy, make_machine()).limit, Limit::Compute);
  // With work for the loader to give back, the same race says what may be, and a clear one names it.
  seen.stage_seconds_per_step[static_cast<size_t>(measure::Stage::Transform)] = 0.5 * seen.step_seconds;
  const Diagnosis unsure = diagnose({}, seen, noisy, make_machine());
  EXPECT_EQ(unsure.limit, Limit::Compute);
  EXPECT_THAT(unsure.sentence, testing::HasSubstr("Perhaps it is data-bound"));
  for (ExperimentBlock& block : blocks) block.seconds_per_sample = block.kind == ExperimentKind::AsIs ? 0.0140 : 0.0115;
  EXPECT_EQ(diagnose({}, seen, ceilings(blocks), make_machine()).limit, Limit::Data);
}

TEST(Ceilings, SayWhatWillNotHelp) {
  std::vector<ExperimentBlock> blocks;
  for (int b = 0; b < 8; ++b) {
    const double drift = 1.0 + 0.1 * b;  // the machine slows down: both arms of a block see it
    blocks.push_back({ExperimentKind::AsIs, b, 0.0103 * drift});
    blocks.push_back({ExperimentKind::FreeLoader, b, 0.0100 * drift});
    blocks.push_back({ExperimentKind::NoLogging, b, 0.0103 * drift});
  }
  const auto found = ceilings(blocks);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NEAR(found[0].gain(), 0.03, 0.001);
  EXPECT_THAT(found[0].sentence, testing::HasSubstr("infinitely fast loader gives at most +3"));
  EXPECT_NEAR(found[1].gain(), 0.0, 0.001);
  EXPECT_EQ(find_ceiling(found, ExperimentKind::NoMonitor), nullptr);
}

TEST(Ceilings, NoiseIsNotPrintedAsABound) {
  std::vector<ExperimentBlock> blocks;
  for (int b = 0; b < 4; ++b) {
    blocks.push_back({ExperimentKind::AsIs, b, b % 2 == 0 ? 0.010 : 0.020});
    blocks.push_back({ExperimentKind::NoLogging, b, b % 2 == 0 ? 0.020 : 0.010});
  }
  const auto found = ceilings(blocks);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].sentence, testing::HasSubstr("What free logging changes is too noisy to say"));
  EXPECT_THAT(found[0].sentence, testing::Not(testing::HasSubstr("at most")));
}

TEST(Ceilings, OnlyWantsWhatCanShowSomething) {
  const auto wanted = wanted_experiments({}, make_seen({{Phase::Forward, 0.5}, {Phase::Validate, 0.1}}), 10);
  std::vector<std::string> names;
  for (const Experiment& e : wanted) names.push_back(experiment_name(e.kind));
  EXPECT_THAT(names, testing::ElementsAre("as_is", "free_loader", "loader_only", "no_validation"));
}

TEST(Ceilings, ARareCadenceIsPricedByItsOccurrences) {
  Observation seen = make_seen({{Phase::Forward, 0.5}, {Phase::Validate, 0.1}});
  seen.phases[static_cast<size_t>(Phase::Validate)].seconds_per_occurrence = 0.5;  // 10 ms of a step: one in 50
  EXPECT_EQ(wanted_experiments({}, seen, 10).size(), 3u);
  const std::vector<double> seconds = {0.5, 0.4, 0.6};
  const auto ceiling = cadence_ceiling(ExperimentKind::NoValidation, seconds, 0.02, 0.1);
  ASSERT_TRUE(ceiling.has_value());
  EXPECT_NEAR(ceiling->gain(), 0.1 / 0.09 - 1, 1e-9);
  EXPECT_NEAR(ceiling->gain_at_most(), 0.1 / 0.088 - 1, 1e-9);
  EXPECT_THAT(ceiling->sentence, testing::HasSubstr("one takes 500 ms, one in 50 steps"));
  EXPECT_FALSE(cadence_ceiling(ExperimentKind::NoValidation, {}, 0.02, 0.1).has_value());
  EXPECT_FALSE(cadence_ceiling(ExperimentKind::NoValidation, seconds, 0, 0.1).has_value());
}

TEST(Verdict, PaddingThatCostsNothingIsNotBlamed) {
  Observation packed = make_seen({{Phase::Forward, 0.45}, {Phase::Backward, 0.53}}, 0.5);
  packed.costs = {true, 0.01, 0.01, 0.02, 0.02};
  EXPECT_EQ(diagnose({}, packed, {}, make_machine()).limit, Limit::Compute);
  packed.costs.padding_share = 0.4;
  EXPECT_EQ(diagnose({}, packed, {}, make_machine()).limit, Limit::Padding);
  packed.costs = {true, 0.0, 0.01, 0.6, 0.02};
  EXPECT_EQ(diagnose({}, packed, {}, make_machine()).limit, Limit::SmallBatch);
}

TEST(Predict, WorkersOnBusyCoresGainLittle) {
  const LoaderModel busy{0.1, 0.02, 2, 2, false};
  EXPECT_NEAR(predicted_step_seconds(busy, 0), 0.120, 1e-9);
  EXPECT_NEAR(predicted_step_seconds(busy, 2), 0.115, 1e-9);
  const LoaderModel spare{0.1, 0.02, 2, 4, false};
  EXPECT_NEAR(predicted_step_seconds(spare, 1), 0.1, 1e-9);
  const LoaderModel gpu{0.1, 0.4, 2, 8, true};
  EXPECT_NEAR(predicted_step_seconds(gpu, 2), 0.2, 1e-9);
  EXPECT_NEAR(predicted_step_seconds(gpu, 8), 0.1, 1e-9);
}

TEST(Predict, PaddingAndPrecision) {
  const Observation seen = make_seen({{Phase::Forward, 0.5}, {Phase::Backward, 0.5}}, 0.5);
  EXPECT_NEAR(predicted_padding_gain(seen, 1.0), 1.0, 1e-9);  // half the work
  EXPECT_NEAR(predicted_padding_gain(seen, 0.0), 0.0, 1e-9);
  EXPECT_LT(predicted_precision_gain(seen, 339, 57), -0.5);
  EXPECT_GT(predicted_precision_gain(seen, 60, 178), 0.3);
}

Surroundings quiet_machine() {
  Surroundings around;
  around.seconds = 10, around.cores = 2, around.own = 1.9;
  around.others = 0.02, around.stolen = 0.0, around.waited = 0.01, around.throttled = 0.0, around.memory_pressure = 0.0;
  return around;
}

TEST(Verdict, WhatIsAroundTheJobIsNamed) {
  const Observation healthy = make_seen({{Phase::Forward, 0.5}, {Phase::Backward, 0.48}}, /*padding=*/0.05);
  const auto verdict = [&](const Surroundings& around, const MachineFacts& machine = make_machine(), JobView job = {}) {
    Observation seen = healthy;
    seen.surroundings = around;
    return diagnose(job, seen, {}, machine);
  };
  EXPECT_EQ(verdict(quiet_machine()).limit, diagnose({}, healthy, {}, make_machine()).limit);

  Surroundings neighbour = quiet_machine();
  neighbour.own = 1.1, neighbour.others = 0.9, neighbour.waited = 0.5, neighbour.disturbed = 1;
  const Diagnosis contended = verdict(neighbour);
  EXPECT_EQ(contended.limit, Limit::Contended);
  EXPECT_NEAR(contended.scores[0].gain, 1.6 / 1.1 - 1, 1e-9);  // it had 1.1 cores and wanted 0.5 more
  EXPECT_THAT(contended.sentence, testing::HasSubstr("other processes use 0.9 of its 2 cores"));

  Surroundings quota = quiet_machine();
  quota.own = 1.0, quota.throttled = 0.5, quota.waited = 0.5, quota.disturbed = 1;
  MachineFacts half = make_machine();
  half.cgroup_cpu_quota = 1.0;
  EXPECT_EQ(verdict(quota, half).limit, Limit::Throttled);
  EXPECT_THAT(verdict(quota, half).sentence, testing::HasSubstr("a quota of 1.00 cores"));

  Surroundings paging = quiet_machine();
  paging.memory_pressure = 0.6, paging.major_faults = 500, paging.disturbed = 1;
  EXPECT_EQ(verdict(paging).limit, Limit::Swapping);

  MachineFacts pinned = make_machine();
  pinned.logical_cpus = 4;
  EXPECT_EQ(verdict(quiet_machine(), pinned).limit, Limit::Pinned);

  Surroundings crowd = quiet_machine();
  crowd.waited = 5.5, crowd.own = 1.6, crowd.switches = 8000;
  JobView many;
  many.threads = 8;
  EXPECT_EQ(verdict(crowd, make_machine(), many).limit, Limit::Oversubscribed);
  EXPECT_EQ(verdict(crowd, make_machine(), many).detail, "threads");
}

// Padding of a disturbed run is believed less.
TEST(Verdict, DisturbanceLowersConfidence) {
  Observation seen = make_seen({{Phase::Wait, 0.4}, {Phase::Forward, 0.3}, {Phase::Backward, 0.29}});
  seen.surroundings = quiet_machine();
  const double before = diagnose({}, seen, {}, make_machine()).confidence;
  seen.surroundings->disturbed = 0.8;
  EXPECT_LT(diagnose({}, seen, {}, make_machine()).confidence, 0.6 * before);
}

}  // namespace
}  // namespace redline::doctor
