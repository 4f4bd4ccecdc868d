#include "doctor/change.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/philox.h"

namespace redline::doctor {
namespace {

using measure::Phase;
using measure::Stage;
using measure::StepRow;

// A job of 10 ms steps with 4 % noise: 6 ms forward, 3 ms backward, 1 ms wait; validation of 30 ms every 20 steps.
std::vector<StepRow> make_rows(uint64_t noise_seed, int64_t steps = 120) {
  std::vector<StepRow> rows;
  for (int64_t i = 0; i < steps; ++i) {
    KeyedStream draw(noise_seed, 0, static_cast<uint64_t>(i), 1);
    StepRow row;
    row.step = i + 1;
    const auto put = [&](Phase phase, double ms) {
      const auto ns = static_cast<int64_t>(ms * 1e6 * (1.0 + 0.04 * draw.normal()));
      row.phase_ns[static_cast<size_t>(phase)] += ns;
      row.wall_ns += ns;
    };
    put(Phase::Forward, 6);
    put(Phase::Backward, 3);
    put(Phase::Wait, 1);
    if (i % 20 == 19) put(Phase::Validate, 30);
    row.stage_ns[static_cast<size_t>(Stage::Decode)] = static_cast<int64_t>(2e6 * (1.0 + 0.04 * draw.normal()));
    rows.push_back(row);
  }
  return rows;
}

void slow_down(std::vector<StepRow>& rows, Phase phase, double ms, int64_t every = 1) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if ((static_cast<int64_t>(i) + 1) % every != 0) continue;
    rows[i].phase_ns[static_cast<size_t>(phase)] += static_cast<int64_t>(ms * 1e6);
    rows[i].wall_ns += static_cast<int64_t>(ms * 1e6);
  }
}

TEST(Change, NothingMovedInNoiseAlone) {
  int alarms = 0;
  for (uint64_t seed = 0; seed < 40; ++seed)
    alarms += !find_change(make_rows(2 * seed + 1), make_rows(2 * seed + 2), {.seed = seed}).moved.empty();
  EXPECT_LE(alarms, 1);
}

TEST(Change, NamesThePhaseAndItsGain) {
  for (double percent : {5.0, 10.0, 20.0, 50.0}) {
    for (Phase phase : {Phase::Copy, Phase::Forward, Phase::Backward, Phase::Optimiser, Phase::Log}) {
      auto now = make_rows(7);
      slow_down(now, phase, 0.115 * percent);
      const Change change = find_change(make_rows(8), now);
      ASSERT_FALSE(change.moved.empty()) << percent;
      EXPECT_EQ(change.moved[0].part.name(), measure::phase_name(phase)) << percent;
      EXPECT_NEAR(change.predicted_gain, percent / 100, 0.02);
    }
  }
}

TEST(Change, FindsWhatHappensRarely) {
  auto now = make_rows(7);
  slow_down(now, Phase::Validate, 20 * 0.6, 20);  // amortised 0.6 ms of 11.5 ms
  const Change change = find_change(make_rows(8), now);
  ASSERT_EQ(change.moved.size(), 1u);
  EXPECT_EQ(change.moved[0].part.name(), "validate");
}

TEST(Change, BlamesTheStageNotTheWaiting) {
  auto now = make_rows(7);
  slow_down(now, Phase::Wait, 2);
  for (StepRow& row : now) row.stage_ns[static_cast<size_t>(Stage::Decode)] += 4'000'000;
  const Change change = find_change(make_rows(8), now);
  ASSERT_EQ(change.moved.size(), 1u);
  EXPECT_EQ(change.moved[0].part.name(), "decode");
  EXPECT_NEAR(change.predicted_gain, 2.0 / 11.5, 0.02);  // only what was waited for
}

// A worker that spins takes cores from training: everything computed slows down alike.
void share_cores(std::vector<StepRow>& rows, double slowdown) {
  for (StepRow& row : rows)
    for (Phase phase : {Phase::Forward, Phase::Backward}) {
      int64_t& ns = row.phase_ns[static_cast<size_t>(phase)];
      const auto more = static_cast<int64_t>(slowdown * static_cast<double>(ns));
      ns += more;
      row.wall_ns += more;
    }
}

TEST(Change, WhatALoaderTakesFromTheCoresIsASymptom) {
  auto now = make_rows(7);
  for (StepRow& row : now) row.stage_ns[static_cast<size_t>(Stage::Decode)] += 3'000'000;
  share_cores(now, 0.15);
  const Change change = find_change(make_rows(8), now);
  ASSERT_EQ(change.moved.size(), 1u);
  EXPECT_EQ(change.moved[0].part.name(), "decode");
  ASSERT_EQ(change.symptoms.size(), 2u);
  EXPECT_NEAR(change.predicted_gain, 0.15 * 9 / 11.5, 0.02);  // it goes with the stage
}

TEST(Change, AFaultBesideASlowStageIsStillNamed) {
  auto now = make_rows(7);
  for (StepRow& row : now) row.stage_ns[static_cast<size_t>(Stage::Decode)] += 3'000'000;
  share_cores(now, 0.10);
  slow_down(now, Phase::Forward, 2);
  const Change change = find_change(make_rows(8), now);
  ASSERT_EQ(change.moved.size(), 2u);
  EXPECT_EQ(change.moved[0].part.name(), "decode");
  EXPECT_EQ(change.moved[1].part.name(), "forward");
  EXPECT_NEAR(change.moved[1].seconds_per_step, 0.002, 0.0004);
}

TEST(Change, AsksForMoreOnlyNearTheLimit) {
  EXPECT_FALSE(is_uncertain(find_change(make_rows(8), make_rows(7))));
  auto now = make_rows(7);
  slow_down(now, Phase::Forward, 0.025 * 11.5);  // the limit itself
  EXPECT_TRUE(is_uncertain(find_change(make_rows(8), now)));
  now = make_rows(7);
  slow_down(now, Phase::Forward, 0.2 * 11.5);
  EXPECT_FALSE(is_uncertain(find_change(make_rows(8), now)));
}

TEST(Change, TheBestOfSeveralPassesLeavesOthersOut) {
  // A neighbour holds up every third step of each pass by half a step, in another place each time.
  const auto disturbed = [](uint64_t seed, double fault_ms) {
    std::vector<std::vector<StepRow>> passes;
    for (uint64_t pass = 0; pass < 4; ++pass) {
      auto rows = make_rows(seed + pass, 24);
      slow_down(rows, Phase::Backward, fault_ms);
      for (size_t i = pass % 3; i < rows.size(); i += 3) {
        rows[i].phase_ns[static_cast<size_t>(Phase::Forward)] += 6'000'000;
        rows[i].wall_ns += 6'000'000;
      }
      passes.push_back(std::move(rows));
    }
    return best_rows(passes);
  };
  EXPECT_TRUE(find_change(disturbed(10, 0), disturbed(20, 0)).moved.empty());
  const Change change = find_change(disturbed(10, 0), disturbed(20, 0.6));
  ASSERT_EQ(change.moved.size(), 1u);
  EXPECT_EQ(change.moved[0].part.name(), "backward");
  EXPECT_NEAR(change.moved[0].seconds_per_step, 0.0006, 0.0002);
}

TEST(Change, TwoFaultsAreBothNamed) {
  auto now = make_rows(7);
  slow_down(now, Phase::Forward, 2);
  slow_down(now, Phase::Log, 1);
  const Change change = find_change(make_rows(8), now);
  ASSERT_EQ(change.moved.size(), 2u);
  EXPECT_EQ(change.moved[0].part.name(), "forward");
  EXPECT_EQ(change.moved[1].part.name(), "log");
}

TEST(Change, RefusesUnpairedRows) { EXPECT_THROW(find_change(make_rows(1, 5), make_rows(2, 6)), InternalError); }

}  // namespace
}  // namespace redline::doctor
