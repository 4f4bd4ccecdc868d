#include "measure/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/philox.h"

namespace redline::measure {
namespace {

TEST(Statistics, Median) {
  EXPECT_EQ(median(std::vector<double>{3}), 3);
  EXPECT_EQ(median(std::vector<double>{5, 1, 3}), 3);
  EXPECT_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median(std::vector<double>{2, 2, 2, 9}), 2);
  EXPECT_THROW(median(std::vector<double>{}), InternalError);
}

TEST(Statistics, Quantile) {
  const std::vector<double> values = {10, 40, 20, 30};
  EXPECT_EQ(quantile(values, 0), 10);
  EXPECT_EQ(quantile(values, 1), 40);
  EXPECT_EQ(quantile(values, 0.5), 25);
  EXPECT_DOUBLE_EQ(quantile(values, 0.1), 13);
  EXPECT_THROW(quantile(values, 1.5), InternalError);
}

TEST(Statistics, SpreadIsRobustAndScaledToSigma) {
  EXPECT_EQ(robust_spread(std::vector<double>{5, 5, 5}), 0);
  KeyedStream noise(3, 0, 0, 0);
  std::vector<double> values;
  for (int i = 0; i < 4000; ++i) values.push_back(10 + 2 * noise.normal());
  EXPECT_NEAR(robust_spread(values), 2, 0.15);
  for (int i = 0; i < 100; ++i) values.push_back(1e6);
  EXPECT_NEAR(robust_spread(values), 2, 0.2) << "a few wild values do not matter";
}

TEST(Statistics, InterleavedOrder) {
  EXPECT_EQ(interleaved_order(2, 0), (std::vector<int>{0, 1, 1, 0}));
  EXPECT_EQ(interleaved_order(2, 1), (std::vector<int>{1, 0, 0, 1}));
  EXPECT_EQ(interleaved_order(3, 1), (std::vector<int>{1, 2, 0, 0, 2, 1}));
  EXPECT_EQ(interleaved_order(1, 5), (std::vector<int>{0, 0}));
  // A linear drift costs every variant the same within a block: places sum to the same.
  for (int variants : {2, 3, 5}) {
    std::vector<int> places(static_cast<size_t>(variants), 0);
    const auto order = interleaved_order(variants, 3);
    for (size_t i = 0; i < order.size(); ++i) places[static_cast<size_t>(order[i])] += static_cast<int>(i);
    for (int place : places) EXPECT_EQ(place, 2 * variants - 1);
  }
}

TEST(Statistics, RatioOfCleanBlocks) {
  const std::vector<double> a = {2, 2.2, 1.8, 2.1, 1.9, 2}, b = {1, 1.1, 0.9, 1.05, 0.95, 1};
  const RatioEstimate estimate = compare_blocks(a, b);
  EXPECT_DOUBLE_EQ(estimate.ratio, 2) << "drift that both runs of a block share cancels";
  EXPECT_NEAR(estimate.interval.low, 2, 1e-9);
  EXPECT_NEAR(estimate.interval.high, 2, 1e-9);
  EXPECT_EQ(estimate.blocks, 6);
  EXPECT_EQ(judge(estimate), Verdict::Faster);
  EXPECT_EQ(judge(compare_blocks(b, a)), Verdict::Slower);
  EXPECT_THROW(compare_blocks(a, std::vector<double>{1}), InternalError);
}

TEST(Statistics, SameSeedSameInterval) {
  const std::vector<double> a = {1, 1.3, 0.8, 1.1, 1.2, 0.9}, b = {1, 0.9, 1.1, 1.05, 0.8, 1};
  const RatioEstimate first = compare_blocks(a, b, 0.95, 7), again = compare_blocks(a, b, 0.95, 7);
  EXPECT_EQ(first.interval.low, again.interval.low);
  EXPECT_EQ(first.interval.high, again.interval.high);
}

TEST(Statistics, Verdicts) {
  const struct {
    RatioEstimate estimate;
    Verdict verdict;
  } cases[] = {
      {{1.2, {1.1, 1.3}, 9}, Verdict::Faster},         {{0.8, {0.7, 0.9}, 9}, Verdict::Slower},
      {{1.0, {0.985, 1.015}, 9}, Verdict::NoEffect},   {{1.3, {0.8, 2.0}, 9}, Verdict::Undecided},
      {{1.09, {0.997, 1.193}, 9}, Verdict::Undecided}, {{1.0, {0.9, 1.1}, 9}, Verdict::Undecided},
      {{1.01, {1.005, 1.015}, 9}, Verdict::NoEffect},
  };
  for (const auto& c : cases) EXPECT_EQ(judge(c.estimate), c.verdict) << verdict_name(c.verdict);
}

TEST(Statistics, OneBlockNeverDecides) {
  EXPECT_EQ(judge(compare_blocks(std::vector<double>{1.5}, std::vector<double>{1})), Verdict::Undecided);
  EXPECT_NE(judge(compare_blocks(std::vector<double>{1.1, 1.2}, std::vector<double>{1, 1})), Verdict::Slower);
}

// Simulated trials: how often "faster" or "slower" is claimed when there is nothing, and how often a real gain is
// found. Log-normal noise with a heavy tail, as timings have.
double claim_rate(int blocks, double true_ratio, double sigma, uint64_t seed, Verdict wanted) {
  constexpr int kTrials = 400;
  int claims = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    KeyedStream noise(seed, static_cast<uint64_t>(trial), static_cast<uint64_t>(blocks), 0);
    std::vector<double> a, b;
    for (int i = 0; i < blocks; ++i) {
      const double drift = std::exp(0.1 * noise.normal());
      const auto run = [&] { return drift * std::exp(sigma * noise.normal() * (noise.uniform() < 0.1 ? 4 : 1)); };
      a.push_back(true_ratio * run());
      b.push_back(run());
    }
    if (judge(compare_blocks(a, b, 0.95, static_cast<uint64_t>(trial))) == wanted) ++claims;
  }
  return static_cast<double>(claims) / kTrials;
}

TEST(Statistics, FalseClaimsStayUnderFivePercent) {
  for (int blocks : {3, 4, 5, 6, 8, 12, 20}) {
    EXPECT_LE(claim_rate(blocks, 1.0, 0.03, 11, Verdict::Faster), 0.05) << blocks << " blocks";
    EXPECT_LE(claim_rate(blocks, 1.0, 0.03, 12, Verdict::Slower), 0.05) << blocks << " blocks";
  }
}

// Blocks that resemble their neighbours: AR(1) noise with nothing in it.
double correlated_claim_rate(int blocks, double lag_one, const BlockCorrelation& known) {
  constexpr int kTrials = 400;
  int claims = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    KeyedStream noise(21, static_cast<uint64_t>(trial), static_cast<uint64_t>(blocks), 0);
    std::vector<double> a, b(static_cast<size_t>(blocks), 1.0);
    double state = noise.normal();
    for (int i = 0; i < blocks; ++i) {
      a.push_back(std::exp(0.03 * state));
      state = lag_one * state + std::sqrt(1 - lag_one * lag_one) * noise.normal();
    }
    claims += judge(compare_blocks(a, b, 0.95, static_cast<uint64_t>(trial), known)) == Verdict::Faster;
  }
  return static_cast<double>(claims) / kTrials;
}

TEST(Statistics, CorrelatedBlocksClaimLittleMore) {
  const BlockCorrelation independent{0, 1e6}, pooled{0.6, 60};
  for (int blocks : {6, 8, 12}) {
    EXPECT_GE(correlated_claim_rate(blocks, 0.6, independent), 0.07) << blocks;  // control: taken as independent
    EXPECT_LE(correlated_claim_rate(blocks, 0.6, {}), 0.09) << blocks;           // few blocks know little of it
    EXPECT_LE(correlated_claim_rate(blocks, 0.6, pooled), 0.05) << blocks;       // with what other blocks showed
    EXPECT_LE(correlated_claim_rate(blocks, 0.3, {}), 0.05) << blocks;
  }
}

TEST(Statistics, CorrelationWidensByWhatItHides) {
  const std::vector<double> alternating = {1, -1, 1, -1, 1, -1, 1, -1}, drifting = {-4, -3, -2, -1, 1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(correlation_factor(alternating, {0, 8}), 1);
  EXPECT_GT(correlation_factor(drifting, {0, 8}), 1.4);
  EXPECT_GT(correlation_factor(drifting, {0.6, 100}), correlation_factor(drifting, {0, 8}));
  EXPECT_DOUBLE_EQ(correlation_factor(std::vector<double>{1}), 1);
}

TEST(Statistics, RealGainsAreFound) {
  // Eight blocks cannot rule out that they resemble their neighbours, and their interval says so.
  EXPECT_GE(claim_rate(8, 1.10, 0.02, 13, Verdict::Faster), 0.85);
  EXPECT_GE(claim_rate(20, 1.05, 0.02, 14, Verdict::Faster), 0.9);
}

}  // namespace
}  // namespace redline::measure
