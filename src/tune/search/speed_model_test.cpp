#include "tune/search/speed_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/philox.h"
#include "tune/search/acquisition.h"

namespace redline::tune {
namespace {

TEST(Cholesky, SolvesWhatItFactors) {
  const std::vector<double> matrix = {4, 0, 0, 2, 5, 0, 1, 3, 6};  // lower half
  const Cholesky factor(matrix, 3);
  const std::vector<double> x = factor.solve({1, -2, 0.5});
  const double full[3][3] = {{4, 2, 1}, {2, 5, 3}, {1, 3, 6}}, right[3] = {1, -2, 0.5};
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(full[i][0] * x[0] + full[i][1] * x[1] + full[i][2] * x[2], right[i], 1e-12) << i;
  EXPECT_NEAR(factor.log_determinant(), std::log(4 * (30 - 9) - 2 * (12 - 3) + 1 * (6 - 5)), 1e-12);
  const std::vector<double> white = factor.lower_solve({1, -2, 0.5});
  EXPECT_NEAR(dot(white, white), x[0] - 2 * x[1] + 0.5 * x[2], 1e-12);
}

TEST(Cholesky, RowsThatSayTheSameTwiceDoNoHarm) {
  const Cholesky factor({1, 0, 1, 1}, 2);
  for (const double value : factor.solve({1, 1})) EXPECT_TRUE(std::isfinite(value));
}

// The same expectation by many draws.
double drawn_gain(const std::vector<Prospect>& prospects) {
  KeyedStream draw(5, 0, 0, 1);
  double now = -HUGE_VAL, sum = 0;
  for (const Prospect& p : prospects) now = std::max(now, p.mean);
  constexpr int kDraws = 40000;
  for (int i = 0; i < kDraws; ++i) {
    const double z = draw.normal();
    double most = -HUGE_VAL;
    for (const Prospect& p : prospects) most = std::max(most, p.mean + p.slope * z);
    sum += (most - now) / kDraws;
  }
  return sum;
}

TEST(Acquisition, TheClosedFormIsWhatDrawsGive) {
  const std::vector<std::vector<Prospect>> cases = {{{0, 0}, {-0.05, 0.1}},
                                                    {{0.1, 0.02}, {0.1, 0.02}, {0.09, -0.05}},
                                                    {{0, 0}, {-0.01, 0.03}, {-0.02, 0.05}, {-0.02, -0.05}, {-5, 0.06}},
                                                    {{0.3, 0.1}, {0, 0.1}, {0.2, -0.2}}};
  for (const auto& prospects : cases) EXPECT_NEAR(expected_gain(prospects), drawn_gain(prospects), 0.001);
  EXPECT_DOUBLE_EQ(expected_gain({{0, 0.1}, {-1, 0.1}}), 0);  // nothing can change the choice
  EXPECT_DOUBLE_EQ(expected_gain({{0, 0}}), 0);
}

Stretch stretch_of(const std::vector<double>& values) {
  Stretch s;
  for (size_t i = 0; i < values.size(); ++i) s.times.push_back(static_cast<int>(i));
  s.values = values;
  s.weights.assign(values.size(), 1.0);
  return s;
}

std::vector<Stretch> noise_of(double deviation, double lag_one, uint64_t seed, int stretches = 12, int blocks = 8) {
  KeyedStream draw(seed, 0, 0, 2);
  std::vector<Stretch> all;
  for (int s = 0; s < stretches; ++s) {
    std::vector<double> values;
    const double level = 0.3 * draw.normal();
    double state = draw.normal();
    for (int i = 0; i < blocks; ++i) {
      values.push_back(level + deviation * state);
      state = lag_one * state + std::sqrt(1 - lag_one * lag_one) * draw.normal();
    }
    all.push_back(stretch_of(values));
  }
  return all;
}

TEST(BlockNoise, ItsSizeAndWhatStaysOfItAreFound) {
  double independent = 0, correlated = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const BlockNoise white = fit_noise(noise_of(0.03, 0, seed)), slow = fit_noise(noise_of(0.03, 0.8, seed));
    EXPECT_NEAR(std::sqrt(white.variance), 0.03, 0.012) << seed;
    EXPECT_NEAR(std::sqrt(slow.variance), 0.03, 0.015) << seed;
    independent += white.slow / 20, correlated += slow.slow / 20;
  }
  EXPECT_LE(independent, 0.3);
  EXPECT_GT(correlated, 0.5);
}

TEST(BlockNoise, WhatStaysLeavesLessToLearn) {
  const BlockNoise white{0.001, 0, 50}, slow{0.001, 0.6, 50};
  EXPECT_NEAR(1 / information_after({}, 8, white), 0.001 / 8, 1e-6);
  EXPECT_GT(1 / information_after({}, 8, slow), 0.001 * 0.3);
  const Stretch eight = stretch_of(std::vector<double>(8, 0.1));
  EXPECT_NEAR(summarise(eight, slow).information, information_after({}, 8, slow), 1e-6);
  EXPECT_GT(information_after(eight, 4, slow), information_after(eight, 0, slow));
}

TEST(BlockNoise, ABlockThatWasHeldUpCountsForLittle) {
  const BlockNoise noise{0.02 * 0.02, 0.2, 50};
  EXPECT_NEAR(summarise(stretch_of({0.1, 0.11, 0.09, 0.9, 0.1}), noise).mean, 0.1, 0.02);
  // Of one block nobody knows.
  EXPECT_LT(summarise(stretch_of({0.1}), noise).information, 0.3 * information_after({}, 3, noise));
}

// Two groups, the first with two values.
SpeedModel two_groups() {
  std::vector<ModelSwitch> switches = {{0, 0.2, 0.08, doctor::WorksOn::Compute},
                                       {0, 0.1, 0.05, doctor::WorksOn::Compute},
                                       {1, 0.0, 0.05, doctor::WorksOn::Compute}};
  return {switches, [](const Combination& c) { return (c[0] == 0 ? 0.2 : c[0] == 1 ? 0.1 : 0) + 0.0 * c[1]; }};
}

const Combination kReference = {kNoValue, kNoValue};

TEST(SpeedModel, BeforeAnyBlockItBelievesThePrediction) {
  const SpeedModel model = two_groups();
  const SpeedModel::View view = model.view({kReference, {0, kNoValue}});
  EXPECT_DOUBLE_EQ(view.now.mean, 0.2);
  EXPECT_DOUBLE_EQ(view.now.deviation, 0.08);
  EXPECT_FALSE(std::isfinite(SpeedModel::from_blocks(view).deviation));
  EXPECT_DOUBLE_EQ(model.mean({0, kNoValue}), 0.2);
}

TEST(SpeedModel, BlocksOutweighThePredictionAndAreToldApartFromIt) {
  SpeedModel model = two_groups();
  const Contrast alone{kReference, {0, kNoValue}};
  KeyedStream draw(3, 0, 0, 1);
  for (int i = 0; i < 30; ++i) model.add(alone, 0.05 + 0.01 * draw.normal());
  const SpeedModel::View view = model.view(alone);
  EXPECT_NEAR(view.now.mean, 0.05, 0.015);
  EXPECT_LT(view.now.deviation, 0.02);
  EXPECT_NEAR(SpeedModel::from_blocks(view).mean, 0.05, 0.01);  // the prediction taken out again
  EXPECT_GT(SpeedModel::from_blocks(view).deviation, view.now.deviation);
  EXPECT_NEAR(model.mean({0, kNoValue}), view.now.mean, 1e-9);
  EXPECT_EQ(model.blocks_of(alone), 30);
  EXPECT_EQ(model.blocks_of({alone.b, alone.a}), 30);  // either way round
}

TEST(SpeedModel, OneValueOfASwitchTellsOfAnotherAndAPairOfItsParts) {
  SpeedModel model = two_groups();
  const double before = model.mean({1, kNoValue});
  for (int i = 0; i < 8; ++i) model.add({kReference, {0, kNoValue}}, 0.4);
  EXPECT_GT(model.mean({1, kNoValue}), before + 0.03);  // the formula is off for both
  EXPECT_NEAR(model.mean({kNoValue, 2}), 0, 1e-9);      // and says nothing of another switch
  SpeedModel pair = two_groups();
  for (int i = 0; i < 8; ++i) pair.add({kReference, {0, 2}}, 0.5);
  EXPECT_GT(pair.mean({0, kNoValue}), 0.2);
  EXPECT_GT(pair.mean({kNoValue, 2}), 0);
  EXPECT_LT(pair.mean({0, kNoValue}) + pair.mean({kNoValue, 2}), pair.mean({0, 2}));  // some of it is theirs together
}

TEST(SpeedModel, EitherWayRoundIsTheSamePair) {
  SpeedModel one = two_groups(), other = two_groups();
  for (int i = 0; i < 4; ++i) one.add({kReference, {1, kNoValue}}, 0.07), other.add({{1, kNoValue}, kReference}, -0.07);
  EXPECT_DOUBLE_EQ(one.mean({1, kNoValue}), other.mean({1, kNoValue}));
}

// Intervals of 95 % under noise as it is: white, and with a part that wanders. A flat truth would be told by the prior,
// so effects are drawn from it.
TEST(SpeedModel, IntervalsCoverWhatTheyClaim) {
  for (const double lag_one : {0.0, 0.6}) {
    int inside = 0;
    constexpr int kTrials = 300;
    for (uint64_t seed = 0; seed < kTrials; ++seed) {
      KeyedStream draw(seed, 7, 0, 1);
      SpeedModel model = two_groups();
      const double truth = 0.2 + 0.08 * draw.normal();
      double state = draw.normal();
      for (int i = 0; i < 10; ++i) {
        model.add({kReference, {0, kNoValue}}, truth + 0.05 * state);
        state = lag_one * state + std::sqrt(1 - lag_one * lag_one) * draw.normal();
      }
      const Belief now = model.view({kReference, {0, kNoValue}}).now;
      inside += std::abs(now.mean - truth) < 1.96 * now.deviation;
    }
    EXPECT_GE(inside, kTrials * (lag_one > 0 ? 87 : 92) / 100) << lag_one;
  }
}

}  // namespace
}  // namespace redline::tune
