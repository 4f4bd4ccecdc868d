// Against closed forms; the reference project's own figures are in tests/vae_fixture_test.cpp.
#include "models/sequence_vae/posterior_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/philox.h"

namespace redline::models::sequence_vae {
namespace {

struct PosteriorSet {
  std::vector<float> mean, log_variance, draw;
  Posteriors view(int64_t first, int64_t n, int64_t latent) const {
    const auto begin = static_cast<size_t>(first * latent), count = static_cast<size_t>(n * latent);
    return {n, latent, std::span(mean).subspan(begin, count), std::span(log_variance).subspan(begin, count),
            std::span(draw).subspan(begin, count)};
  }
};

PosteriorSet random_set(int64_t n, int64_t latent, double mean_scale, double log_variance) {
  KeyedStream stream(1, 2, 3, 4);
  PosteriorSet set;
  for (int64_t i = 0; i < n * latent; ++i) {
    set.mean.push_back(static_cast<float>(mean_scale * stream.normal()));
    set.log_variance.push_back(static_cast<float>(log_variance));
    set.draw.push_back(set.mean.back() + static_cast<float>(std::exp(0.5 * log_variance) * stream.normal()));
  }
  return set;
}

const std::optional<Information> kNotEstimated;

TEST(PosteriorStatistics, KlOfTheClosedForm) {
  EXPECT_EQ(kl_of(0.0, 0.0), 0.0);
  EXPECT_NEAR(kl_of(2.0, 0.0), 2.0, 1e-12);
  EXPECT_NEAR(kl_of(0.0, std::log(4.0)), 0.5 * (4.0 - std::log(4.0) - 1.0), 1e-12);
}

TEST(PosteriorStatistics, StreamedInPartsEqualsAllAtOnce) {
  const PosteriorSet set = random_set(101, 3, 1.5, -0.7);
  PosteriorStatistics whole(3), parts(3);
  whole.add(set.view(0, 101, 3), kNotEstimated);
  for (int64_t first = 0; first < 101; first += 7)
    parts.add(set.view(first, std::min<int64_t>(7, 101 - first), 3), kNotEstimated);
  EXPECT_EQ(parts.count(), 101);
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_NEAR(parts.kl_per_dim()[k], whole.kl_per_dim()[k], 1e-12);
    EXPECT_NEAR(parts.variance_of_means()[k], whole.variance_of_means()[k], 1e-12);
  }
  double mean = 0.0, square = 0.0;
  for (size_t i = 0; i < 101; ++i) mean += set.mean[i * 3] / 101.0;
  for (size_t i = 0; i < 101; ++i) square += std::pow(set.mean[i * 3] - mean, 2) / 100.0;
  EXPECT_NEAR(whole.variance_of_means()[0], square, 1e-10);
}

// A large common offset must not eat the variance (the naive sum of squares would lose it).
TEST(PosteriorStatistics, VarianceSurvivesALargeOffset) {
  PosteriorStatistics statistics(1);
  const std::vector<float> mean = {4096.0f, 4097.0f, 4098.0f}, zero = {0, 0, 0};
  statistics.add({3, 1, mean, zero, zero}, kNotEstimated);
  EXPECT_NEAR(statistics.variance_of_means()[0], 1.0, 1e-9);
}

TEST(PosteriorStatistics, ActiveUnitsCountDimensionsThatMove) {
  PosteriorSet set;
  for (int i = 0; i < 50; ++i) {
    set.mean.insert(set.mean.end(), {i % 2 == 0 ? 1.0f : -1.0f, 0.3f});
    set.log_variance.insert(set.log_variance.end(), {0.0f, 0.0f});
    set.draw.insert(set.draw.end(), {0.0f, 0.0f});
  }
  PosteriorStatistics statistics(2);
  statistics.add(set.view(0, 50, 2), kNotEstimated);
  EXPECT_EQ(statistics.active_units(), 1);  // the second is far from zero but never moves
  EXPECT_EQ(statistics.active_units(10.0), 0);
}

TEST(MutualInformation, IsZeroWhenAllPosteriorsAreEqual) {
  const PosteriorSet set = random_set(64, 4, 0.0, 0.0);
  const Information equal = mutual_information(set.view(0, 64, 4));
  EXPECT_NEAR(equal.closed_form, 0.0, 0.35);  // a Monte-Carlo estimate with 64 draws
  EXPECT_NEAR(equal.paired, 0.0, 1e-12);      // its noise cancels
}

TEST(MutualInformation, SaturatesAtLogN) {
  const PosteriorSet set = random_set(64, 4, 100.0, -4.0);
  EXPECT_NEAR(mutual_information(set.view(0, 64, 4)).closed_form, std::log(64.0), 0.5);
  EXPECT_NEAR(mutual_information(set.view(0, 64, 4)).paired, std::log(64.0), 1e-6);
  EXPECT_EQ(mutual_information(set.view(0, 0, 4)).closed_form, 0.0);
}

TEST(MutualInformation, IsWeightedByBatchSize) {
  const PosteriorSet set = random_set(30, 2, 1.0, 0.0);
  PosteriorStatistics statistics(2);
  statistics.add(set.view(0, 10, 2), Information{1.0, 0.5});
  statistics.add(set.view(10, 20, 2), Information{4.0, 2.0});
  EXPECT_NEAR(statistics.information_mean()->closed_form, 3.0, 1e-12);
  EXPECT_NEAR(statistics.information_mean()->paired, 1.5, 1e-12);
  EXPECT_FALSE(PosteriorStatistics(2).information_mean().has_value());
}

// Both forms estimate the same number; on a set with some information the closed form scatters around the paired one.
TEST(MutualInformation, BothFormsAgreeOnAverage) {
  const PosteriorSet set = random_set(2000, 8, 1.0, -0.5);
  PosteriorStatistics statistics(8);
  double spread = 0.0;
  for (int64_t first = 0; first < 2000; first += 20) {
    const Information part = mutual_information(set.view(first, 20, 8));
    statistics.add(set.view(first, 20, 8), part);
    spread = std::max(spread, std::abs(part.closed_form - part.paired));
  }
  EXPECT_NEAR(statistics.information_mean()->closed_form, statistics.information_mean()->paired, 0.15);
  EXPECT_GT(spread, 0.3);
}

}  // namespace
}  // namespace redline::models::sequence_vae
