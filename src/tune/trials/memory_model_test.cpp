#include "tune/trials/memory_model.h"

#include <gtest/gtest.h>

namespace redline::tune {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(MemoryModel, ALineThroughWhatRan) {
  MemoryModel model;
  EXPECT_FALSE(model.infeasible(1024, 100 * kMiB));  // nothing known: not ruled out
  model.add(2, 140 * kMiB);
  EXPECT_EQ(model.predicted_bytes(8), 0);  // one point is no line
  model.add(4, 180 * kMiB);
  EXPECT_EQ(model.predicted_bytes(8), 260 * kMiB);
  EXPECT_FALSE(model.infeasible(8, 250 * kMiB));  // within the margin: worth a try
  EXPECT_TRUE(model.infeasible(16, 250 * kMiB));
  EXPECT_EQ(model.largest_that_ran(), 4);
}

TEST(MemoryModel, AFailureRulesOutLargerSizes) {
  MemoryModel model;
  model.add(2, 10);
  model.add_failure(16);
  EXPECT_TRUE(model.infeasible(16, 0));
  EXPECT_TRUE(model.infeasible(32, 0));
  EXPECT_FALSE(model.infeasible(8, 0));
}

}  // namespace
}  // namespace redline::tune
