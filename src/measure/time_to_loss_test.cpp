#include "measure/time_to_loss.h"

#include <gtest/gtest.h>

#include <cmath>

namespace redline::measure {
namespace {

HeldOutCurve falling(double per_sample, double end, double samples = 1000, int points = 11) {
  HeldOutCurve curve;
  for (int i = 0; i < points; ++i) {
    curve.samples.push_back(samples * i / (points - 1));
    curve.losses.push_back(end + 5 * std::exp(-per_sample * curve.samples.back()));
  }
  return curve;
}

TEST(TimeToLoss, WhereACurveReachesALoss) {
  const HeldOutCurve curve{{0, 10, 20, 30}, {5, 3, 2, 2.5}};
  EXPECT_DOUBLE_EQ(*samples_to_reach(curve, 4), 5);
  EXPECT_DOUBLE_EQ(*samples_to_reach(curve, 2), 20);
  EXPECT_DOUBLE_EQ(*samples_to_reach(curve, 6), 0);
  EXPECT_FALSE(samples_to_reach(curve, 1).has_value());
  EXPECT_DOUBLE_EQ(*samples_to_reach({{0, 10}, {INFINITY, 1}}, 2), 10);  // nothing between is known
}

TEST(TimeToLoss, EfficiencyIsSamplesOverSamples) {
  const HeldOutCurve reference = falling(0.004, 1, 1000, 201);
  EXPECT_NEAR(*pair_efficiency(reference, reference), 1, 1e-9);
  EXPECT_NEAR(*pair_efficiency(reference, falling(0.002, 1, 1000, 201)), 0.5, 0.01);  // half as good per sample
  EXPECT_NEAR(*pair_efficiency(reference, falling(0.008, 1, 1000, 201)), 2, 0.02);
  // To a loss that both have long passed.
  EXPECT_NEAR(*pair_efficiency(reference, falling(0.002, 1, 1000, 201), 4.0), 0.5, 0.01);
  // What stays at its first loss has no efficiency: nothing is reached but the start.
  EXPECT_FALSE(pair_efficiency(reference, {{0, 1000}, {6, 6}}).has_value());
}

TEST(TimeToLoss, MeansAndProductsCarryTheirErrors) {
  const std::vector<double> ratios = {0.5, 1, 2};
  const RatioEstimate mean = mean_ratio(ratios);
  EXPECT_NEAR(mean.ratio, 1, 1e-12);
  EXPECT_NEAR(mean.interval.high, std::exp(4.30265 * std::log(2.0) / std::sqrt(3.0)), 1e-3);
  const RatioEstimate speed{1.5, {1.4, 1.6}, 6}, efficiency{0.8, {0.7, 0.9}, 5};
  const RatioEstimate both = product(speed, efficiency);
  EXPECT_NEAR(both.ratio, 1.2, 1e-12);
  EXPECT_NEAR(both.interval.low, 1.2 * std::exp(-std::hypot(std::log(1.5 / 1.4), std::log(0.8 / 0.7))), 1e-12);
  EXPECT_LT(both.interval.high, 1.6 * 0.9);
}

TEST(TimeToLoss, NoiseSaysWhatASampleIsWorth) {
  const std::vector<NoiseScale> none, small = {{100, 1}}, large = {{100, 1e6}}, both = {{50, 0}, {100, 30}};
  EXPECT_DOUBLE_EQ(noise_efficiency(none, 8, 64), 1);
  EXPECT_NEAR(noise_efficiency(small, 8, 64), 9.0 / 65, 1e-12);
  EXPECT_NEAR(noise_efficiency(large, 8, 64), 1, 1e-4);
  EXPECT_NEAR(noise_efficiency(both, 10, 20), 2 / (2.0 + 50.0 / 40), 1e-12);
  EXPECT_GT(noise_efficiency(small, 8, 4), 1);
}

// A law loss = 4 - log2(worth x samples / 100): a candidate whose samples are worth 0.7 is found to be so.
TEST(TimeToLoss, EndsOfSchedulesTellWhatASampleIsWorth) {
  const auto loss = [](double samples) { return 4 - std::log2(samples / 100); };
  std::vector<double> half, whole, candidate;
  for (const double seed : {-0.02, 0.01, 0.03, -0.01, 0.0}) {
    half.push_back(loss(400) + seed);
    whole.push_back(loss(800) + 0.5 * seed);
    candidate.push_back(loss(0.7 * 800) + 0.4 * seed);
  }
  const auto worth = schedule_efficiency(half, whole, candidate);
  ASSERT_TRUE(worth);
  EXPECT_NEAR(worth->ratio, 0.7, 0.01);
  EXPECT_LT(worth->interval.low, 0.7);
  EXPECT_GT(worth->interval.high, 0.7);
  EXPECT_NEAR(schedule_efficiency(half, whole, whole)->ratio, 1, 1e-12);
  EXPECT_FALSE(schedule_efficiency(whole, whole, candidate));  // it had learned all in the first half
  EXPECT_FALSE(schedule_efficiency(std::span(half).first(1), std::span(whole).first(1), std::span(candidate).first(1)));
  candidate[2] = NAN;
  EXPECT_FALSE(schedule_efficiency(half, whole, candidate));
}

}  // namespace
}  // namespace redline::measure
