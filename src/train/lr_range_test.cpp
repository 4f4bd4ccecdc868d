#include "train/lr_range.h"

#include <gtest/gtest.h>

#include <cmath>

namespace redline::train {
namespace {

// A loss that falls around `centre` and explodes above `limit`.
std::vector<LrPoint> curve(double centre, double limit, int steps = 200) {
  std::vector<LrPoint> points;
  for (int i = 0; i < steps; ++i) {
    const double lr = std::pow(10.0, -7.0 + 8.0 * i / (steps - 1));
    const double fall = 3.0 / (1.0 + std::exp(-4.0 * std::log10(lr / centre)));
    points.push_back({lr, 5.0 - fall + (lr > limit ? 4.0 * std::log10(lr / limit) * 10 : 0.0), 0});
  }
  return points;
}

TEST(LrRange, FindsTheFallTheLowestAndTheBreak) {
  for (const double centre : {1e-4, 1e-2}) {
    const LrRange range = judge_lr_range(curve(centre, centre * 30));
    ASSERT_TRUE(range.steepest && range.lowest && range.broke);
    EXPECT_NEAR(std::log10(*range.steepest / centre), 0.3, 0.5) << "a smoothed loss lags a little";
    EXPECT_GT(*range.lowest, *range.steepest);
    EXPECT_GT(*range.broke, centre * 30);
    EXPECT_LT(*range.broke, centre * 300);
    EXPECT_NE(range.sentence.find("model.optim.lr="), std::string::npos);
  }
}

TEST(LrRange, ALossThatIsNotFiniteBreaksThere) {
  auto points = curve(1e-3, 1e9);
  points[150].loss = NAN;
  const LrRange range = judge_lr_range(points);
  EXPECT_DOUBLE_EQ(range.broke.value(), points[150].lr);
  EXPECT_EQ(range.points.size(), 150u);
}

TEST(LrRange, WhatNeverFallsIsSaid) {
  std::vector<LrPoint> flat;
  for (int i = 0; i < 100; ++i) flat.push_back({std::pow(10.0, -6 + i * 0.05), 2.0, 0});
  EXPECT_FALSE(judge_lr_range(flat).steepest);
  EXPECT_NE(judge_lr_range(flat).sentence.find("does not fall"), std::string::npos);
  EXPECT_NE(judge_lr_range({{1e-3, NAN, 0}}).sentence.find("Only 0 steps"), std::string::npos);
}

}  // namespace
}  // namespace redline::train
