#include "doctor/scaling/overlap.h"

#include <gtest/gtest.h>

#include <vector>

namespace redline::doctor {
namespace {

ReduceSeconds second_per_byte(double bytes) { return {0, bytes}; }
ReduceSeconds messages_only(double) { return {3, 0}; }

TEST(Overlap, TimelinesByHand) {
  const std::vector<TimedBucket> hidden{{1, 0.5}, {1, 2.0}};
  EXPECT_EQ(exposed_seconds(hidden, 5, second_per_byte), 0);
  EXPECT_EQ(exposed_seconds(hidden, 2, second_per_byte), 1) << "the last one leaves when backward ends";
  const std::vector<TimedBucket> queued{{4, 1.0}, {2, 2.0}, {1, 3.0}};
  EXPECT_EQ(exposed_seconds(queued, 3, second_per_byte), 5) << "1 + 4, then 2, then 1, less 3";
  EXPECT_EQ(exposed_seconds({}, 3, second_per_byte), 0);
  const std::vector<TimedBucket> together{{1, 0.0}, {1, 0.0}, {1, 0.0}};
  EXPECT_EQ(exposed_seconds(together, 0, messages_only, 1), 9) << "one after another";
  EXPECT_EQ(exposed_seconds(together, 0, messages_only, 2), 6) << "two wait for their messages at once";
  EXPECT_EQ(exposed_seconds(together, 0, second_per_byte, 2), 3) << "the link moves one at a time";
  const std::vector<TimedBucket> one{{7, 3.0}};
  EXPECT_EQ(exposed_seconds(one, 3, second_per_byte), 7) << "one bucket hides nothing";
}

}  // namespace
}  // namespace redline::doctor
