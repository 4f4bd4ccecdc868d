#include "draw/ticks.h"

#include <gtest/gtest.h>

#include <cmath>

namespace redline::draw {
namespace {

struct TickRow {
  double low, high;
  std::vector<double> ticks;
};

void expect_ticks(const std::vector<double>& got, const TickRow& row) {
  ASSERT_EQ(got.size(), row.ticks.size()) << row.low << " " << row.high;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], row.ticks[i], 1e-9) << row.low << " " << row.high;
}

TEST(Ticks, AroundAreRoundAndCoverTheRange) {
  for (const TickRow& row : std::vector<TickRow>{{0, 4, {0, 1, 2, 3, 4}},
                                                 {0, 10, {0, 5, 10}},
                                                 {0, 0.1, {0, 0.05, 0.1}},
                                                 {-3, 5, {-4, -2, 0, 2, 4, 6}},
                                                 {7, 7, {6, 8, 10, 12, 14}}})
    expect_ticks(ticks_around(row.low, row.high), row);
}

TEST(Ticks, WithinAreRoundAndLieInTheRange) {
  for (const TickRow& row : std::vector<TickRow>{{0, 4, {0, 1, 2, 3, 4}},
                                                 {0, 10, {0, 2, 4, 6, 8, 10}},
                                                 {-0.03, 0.09, {-0.02, 0, 0.02, 0.04, 0.06, 0.08}},
                                                 {1234, 5678, {2000, 3000, 4000, 5000}}})
    expect_ticks(ticks_within(row.low, row.high, 4), row);
  for (const double zero : {ticks_within(-1, 1, 4)[2], ticks_within(-0.3, 0.3, 4)[2]}) {
    EXPECT_EQ(zero, 0.0);
    EXPECT_FALSE(std::signbit(zero)) << "a label must not read -0";
  }
}

}  // namespace
}  // namespace redline::draw
