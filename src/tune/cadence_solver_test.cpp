#include "tune/cadence_solver.h"

#include <gtest/gtest.h>

namespace redline::tune {
namespace {

TEST(CadenceSolver, StaysUnderTheShare) {
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

TEST(CadenceSolver, FreeThingsMayHappenEveryStep) {
  EXPECT_EQ(cadence_steps(0, 0.1, 0.01), 1);
  EXPECT_EQ(cadence_steps(1e-9, 0.1, 0.01, 10), 10);
}

TEST(CadenceSolver, FailuresAskForCheckpoints) {
  // Cost 2 s, a failure every 10,000 s, steps of 1 s: every 200 steps.
  EXPECT_EQ(checkpoint_steps(2, 1, 0.035, 10000), 200);
  // Rarer than the optimum when the share forbids it.
  EXPECT_EQ(checkpoint_steps(2, 1, 0.001, 10000), cadence_steps(2, 1, 0.001));
  EXPECT_EQ(checkpoint_steps(2, 1, 0.035, 0), cadence_steps(2, 1, 0.035));
}

}  // namespace
}  // namespace redline::tune
