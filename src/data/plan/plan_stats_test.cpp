#include "data/plan_stats.h"

#include <gtest/gtest.h>

#include <cmath>

namespace redline::data {
namespace {

TEST(LengthStats, QuantilesAndUnknowns) {
  const auto stats = length_stats(102, [](int64_t i) { return i == 101 ? NAN : static_cast<double>(i); });
  EXPECT_EQ(stats.count, 102);
  EXPECT_EQ(stats.unknown, 1);
  EXPECT_EQ(stats.min, 0);
  EXPECT_EQ(stats.median, 50);
  EXPECT_EQ(stats.p95, 95);
  EXPECT_EQ(stats.max, 100);
  EXPECT_DOUBLE_EQ(stats.total, 5050);
}

TEST(PaddingShare, IsWhatCollationWouldAdd) {
  const PlanSource source{4, [](int64_t i) { return std::vector<double>{1, 3, 2, 2}[static_cast<size_t>(i)]; }, {}, 1};
  const auto plan = Planner({.batch_size = 2}, source).epoch(0);
  EXPECT_DOUBLE_EQ(padding_share(*plan, source.length), 1.0 - 8.0 / 10.0);
}

TEST(PaddingTable, BucketsPadLessAndABatchOfOneNotAtAll) {
  const PlanSource source{2000, [](int64_t i) { return 1.0 + static_cast<double>((i * 7919) % 97); }, {}, 1};
  const auto rows = padding_table({.shuffle = true, .batch_size = 1}, source, {1, 8, 32}, 8);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_NEAR(rows[0].plain, 0.0, 1e-12);
  for (size_t r = 1; r < 3; ++r) {
    EXPECT_GT(rows[r].plain, 0.3);
    EXPECT_LT(rows[r].bucketed, 0.5 * rows[r].plain);
  }
}

}  // namespace
}  // namespace redline::data
