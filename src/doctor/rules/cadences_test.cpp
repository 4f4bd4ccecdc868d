#include "doctor/rules/cadences.h"

#include <gtest/gtest.h>

namespace redline::doctor {
namespace {

TEST(Cadences, StaysUnderTheShare) {
  for (double cost : {0.001, 0.05, 3.0})
    for (double step : {0.001, 0.1})
      for (double share : {0.01, 0.035, 0.5}) {
        const auto steps = static_cast<double>(cadence_steps(cost, step, share));
        EXPECT_LE(cost / (steps * step + cost), share + 1e-9);
        if (steps > 1) {
          EXPECT_GT(cost / ((steps - 1) * step + cost), share - 1e-9);  // one step less would break it
        }
      }
}

TEST(Cadences, FreeThingsMayHappenEveryStep) {
  EXPECT_EQ(cadence_steps(0, 0.1, 0.01), 1);
  EXPECT_EQ(cadence_steps(1e-9, 0.1, 0.01, 10), 10);
}

}  // namespace
}  // namespace redline::doctor
