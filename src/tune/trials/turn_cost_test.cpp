#include "tune/trials/turn_cost.h"

#include <gtest/gtest.h>

#include "measure/cadences.h"

namespace redline::tune {
namespace {

measure::StepRow make_row(double seconds, double validate, int samples, int64_t items) {
  measure::StepRow row;
  row.wall_ns = static_cast<int64_t>(1e9 * (seconds + validate));
  row.phase_ns[static_cast<size_t>(measure::Phase::Forward)] = static_cast<int64_t>(1e9 * seconds);
  row.phase_ns[static_cast<size_t>(measure::Phase::Validate)] = static_cast<int64_t>(1e9 * validate);
  row.samples = samples;
  row.items = items;
  return row;
}

TEST(Objective, AValidationInsideATrialIsChargedAtItsRate) {
  const std::vector<measure::StepRow> rows = {make_row(1, 0, 4, 40), make_row(1, 9, 4, 40)};
  const TurnCost turn = turn_cost(rows);
  EXPECT_DOUBLE_EQ(turn.seconds, 2);
  const double cadence = measure::cadence_seconds({0, 0, 9, 0}, {0, 0, 0.01, 0});
  EXPECT_NEAR(seconds_per_sample(turn, cadence, 0), (2 + 2 * 0.09) / 8, 1e-9);
}

TEST(Objective, LongSamplesDoNotLookSlow) {
  const TurnCost brief = turn_cost(std::vector{make_row(1, 0, 4, 40)});
  const TurnCost longer = turn_cost(std::vector{make_row(3, 0, 4, 120)});
  EXPECT_DOUBLE_EQ(seconds_per_sample(brief, 0, 20), seconds_per_sample(longer, 0, 20));
  EXPECT_GT(seconds_per_sample(longer, 0, 0), seconds_per_sample(brief, 0, 0));
}

}  // namespace
}  // namespace redline::tune
