#include "models/sequence_vae/kl_schedule.h"

#include <gtest/gtest.h>

namespace redline::models::sequence_vae {
namespace {

TEST(KlSchedule, ConstantIsConstant) {
  KlScheduleConfig s;
  s.weight = 0.7;
  EXPECT_EQ(kl_weight(s, 0), 0.7);
  EXPECT_EQ(kl_weight(s, 1'000'000), 0.7);
  EXPECT_TRUE(kl_weight_is_full(s, 0));
}

TEST(KlSchedule, LinearGrowsBeforeEachStep) {
  KlScheduleConfig s;
  s.kind = "linear";
  s.start = 0.1;
  s.warm_up_steps = 9;
  const std::vector<double> expected = {0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(kl_weight(s, static_cast<int64_t>(i)), expected[i], 1e-12) << i;
  EXPECT_FALSE(kl_weight_is_full(s, 7));
  EXPECT_TRUE(kl_weight_is_full(s, 8));
}

TEST(KlSchedule, LinearScalesWithTheFullWeight) {
  KlScheduleConfig s;
  s.kind = "linear";
  s.weight = 0.5;
  s.warm_up_steps = 2;
  EXPECT_NEAR(kl_weight(s, 0), 0.25, 1e-12);
  EXPECT_NEAR(kl_weight(s, 1), 0.5, 1e-12);
}

// T = 20, M = 2, R = 0.5: each cycle of 10 rises over 5 steps, then stays.
TEST(KlSchedule, CyclicalRisesAndStaysInEachCycle) {
  KlScheduleConfig s;
  s.kind = "cyclical";
  s.num_cycles = 2;
  s.ratio = 0.5;
  s.total_steps = 20;
  const std::vector<double> cycle = {0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0};
  for (int64_t i = 0; i < 20; ++i) EXPECT_NEAR(kl_weight(s, i), cycle[static_cast<size_t>(i % 10)], 1e-12) << i;
  EXPECT_EQ(kl_weight(s, 20), 1.0);
  EXPECT_EQ(kl_weight(s, 500), 1.0);
}

// A period that is no whole number: cycles begin at floor(c * 10/3) = 0, 3, 6.
TEST(KlSchedule, CyclicalWithABrokenPeriodBeginsAtRoundedDownSteps) {
  KlScheduleConfig s;
  s.kind = "cyclical";
  s.num_cycles = 3;
  s.ratio = 0.5;
  s.total_steps = 10;
  for (int64_t begin : {0, 3, 6}) {
    EXPECT_EQ(kl_weight(s, begin), 0.0) << begin;
    EXPECT_NEAR(kl_weight(s, begin + 1), 1.0 / (10.0 / 3.0 * 0.5), 1e-12) << begin;
    EXPECT_EQ(kl_weight(s, begin + 2), 1.0) << begin;
  }
  EXPECT_EQ(kl_weight(s, 9), 1.0);
}

TEST(KlSchedule, CyclicalWithoutARiseIsFull) {
  KlScheduleConfig s;
  s.kind = "cyclical";
  s.ratio = 0.0;
  EXPECT_EQ(kl_weight(s, 0), 1.0);
}

}  // namespace
}  // namespace redline::models::sequence_vae
