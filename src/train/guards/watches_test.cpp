#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "train/guards/drift_watch.h"
#include "train/guards/memory_watch.h"
#include "train/loop/early_stopping.h"

namespace redline::train {
namespace {

using measure::Phase;

measure::StepRow row(double forward_ms, double wait_ms, double validate_ms = 0) {
  measure::StepRow r;
  r.samples = 1;
  r.phase_ns[static_cast<size_t>(Phase::Forward)] = static_cast<int64_t>(forward_ms * 1e6);
  r.phase_ns[static_cast<size_t>(Phase::Wait)] = static_cast<int64_t>(wait_ms * 1e6);
  r.phase_ns[static_cast<size_t>(Phase::Validate)] = static_cast<int64_t>(validate_ms * 1e6);
  return r;
}

TEST(DriftWatch, NamesThePhaseThatMoved) {
  DriftWatch watch(1.25, 2, 10);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(watch.add(row(500, 0)));  // warm-up is not the yardstick
  for (int i = 0; i < 30; ++i) EXPECT_FALSE(watch.add(row(8, 2)));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(watch.add(row(8, 6)));  // one slow window is no news
  std::optional<DriftReport> report;
  for (int i = 0; i < 10 && !report; ++i) report = watch.add(row(8, 6));
  ASSERT_TRUE(report);
  EXPECT_NEAR(*watch.drift(), 0.4, 1e-9);  // 14 ms after 10
  EXPECT_EQ(report->phase, Phase::Wait);
  EXPECT_NEAR(report->ratio, 1.4, 1e-9);
  EXPECT_NEAR(report->phase_now_seconds, 6e-3, 1e-9);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(watch.add(row(8, 6)));  // the new normal
}

TEST(DriftWatch, CadencesAndSinglePausesAreNotDrift) {
  DriftWatch watch(1.25, 0, 10);
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(watch.add(row(8, i % 7 == 0 ? 100 : 2, i > 50 ? 500 : 0)));
}

TEST(EarlyStopping, WaitsForPatience) {
  EarlyStopping stop({{}, "min", 0.01, 2, std::nullopt});
  EXPECT_FALSE(stop.update(1.0));
  EXPECT_FALSE(stop.update(0.5));
  EXPECT_FALSE(stop.update(0.495));  // less than min_delta better
  const auto why = stop.update(0.6);
  ASSERT_TRUE(why);
  EXPECT_THAT(*why, ::testing::HasSubstr("0.5"));
  EXPECT_EQ(stop.best(), 0.5);
}

TEST(EarlyStopping, UpIsBetterForAccuracyAndNanIsNoImprovement) {
  EarlyStopping stop({{}, "max", 0.0, 3, 0.9});
  EXPECT_FALSE(stop.update(0.2));
  EXPECT_FALSE(stop.update(std::nan("")));
  EXPECT_FALSE(stop.update(0.3));
  EXPECT_EQ(stop.waited(), 0);
  EXPECT_TRUE(stop.update(0.95));  // the threshold
  EarlyStopping resumed({{}, "max", 0.0, 2, std::nullopt});
  resumed.restore(0.3, 1);
  EXPECT_TRUE(resumed.update(0.3));
}

TEST(MemoryWatch, TensorsGiveWayToWhatElseTheProcessHolds) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  MemoryWatch watch(8 * kGiB, 10 * kGiB);
  EXPECT_FALSE(watch.update(7 * kGiB, 6 * kGiB));                // 1 GiB of other things: within the reserve
  EXPECT_FALSE(watch.update(8 * kGiB, 6 * kGiB));                // all of the reserve
  EXPECT_EQ(watch.update(9 * kGiB, 6 * kGiB), 7 * kGiB);         // 3 GiB of others: tensors may take 7
  EXPECT_FALSE(watch.update(9 * kGiB + kGiB / 10, 6 * kGiB));    // noise
  EXPECT_EQ(watch.update(12 * kGiB, 0), int64_t{64} << 20);      // never nothing: the guard shall say the sentence
  EXPECT_EQ(watch.update(7 * kGiB, 6 * kGiB), 8 * kGiB);         // and back, not above the first limit
  EXPECT_FALSE(watch.update(1 * kGiB, 6 * kGiB));                // less than its tensors: pages not touched yet
  EXPECT_FALSE(MemoryWatch(8 * kGiB, 0).update(99 * kGiB, 0));   // unknown
  EXPECT_FALSE(MemoryWatch(0, 10 * kGiB).update(99 * kGiB, 0));  // no limit asked for
}

}  // namespace
}  // namespace redline::train
