#include "tune/search/block_noise.h"

#include <algorithm>
#include <cmath>

#include "measure/statistics.h"
#include "tune/search/cholesky.h"

namespace redline::tune {

namespace {

// Priors; the blocks of a search outweigh them after a minute.
constexpr double kUsualDeviation = 0.05, kUsualBlocks = 4;
constexpr double kUsualSlow = 0.3, kSlowDeviation = 0.25;
constexpr double kHeldUp = 2.5;                         // deviations: beyond, a block counts for less
constexpr double kHeldUpVariance = 0.05 * 0.25 * 0.25;  // a block in thirty is off by a quarter; three show which
constexpr double kLeastVariance = 1e-5;                 // blocks that agree by luck are no proof of a noiseless machine

// Of a variance of one.
Cholesky correlation(const std::vector<int>& times, const std::vector<double>& weights, double slow) {
  const size_t n = times.size();
  std::vector<double> matrix(n * n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j <= i; ++j)
      matrix[i * n + j] =
          slow * std::pow(kSlowStays, std::abs(times[i] - times[j])) + (i == j ? (1 - slow) / weights[i] + 1e-9 : 0);
  return {std::move(matrix), n};
}

std::vector<double> weights_of(const Stretch& stretch, double deviation) {
  const std::vector<double>& values = stretch.values;
  if (values.size() < 3) return stretch.weights;
  std::vector<double> weights(values.size(), 1.0);
  const double middle = measure::median(values);
  for (size_t i = 0; i < values.size(); ++i)
    if (const double off = std::abs(values[i] - middle); off > kHeldUp * deviation)
      weights[i] = std::pow(kHeldUp * deviation / off, 2);
  return weights;
}

struct Fit {
  double mean = 0, information = 0, misses = 0, log_determinant = 0;  // of a variance of one
};

Fit fit_stretch(const Stretch& stretch, double slow, double deviation) {
  const Cholesky factor = correlation(stretch.times, weights_of(stretch, deviation), slow);
  const std::vector<double> one = factor.lower_solve(std::vector<double>(stretch.values.size(), 1.0));
  const std::vector<double> y = factor.lower_solve(stretch.values);
  Fit fit;
  fit.information = dot(one, one);
  fit.mean = dot(one, y) / fit.information;
  fit.misses = std::max(0.0, dot(y, y) - fit.mean * fit.mean * fit.information);
  fit.log_determinant = factor.log_determinant();
  return fit;
}

// A first idea of the spread, from neighbours: their differences know no mean.
double first_deviation(const std::vector<Stretch>& stretches) {
  std::vector<double> steps;
  for (const Stretch& stretch : stretches)
    for (size_t i = 1; i < stretch.values.size(); ++i)
      steps.push_back(std::abs(stretch.values[i] - stretch.values[i - 1]));
  if (steps.size() < 3) return kUsualDeviation;
  return std::max(0.003, 1.4826 * measure::median(steps) / std::sqrt(2.0) / std::sqrt(1 - kUsualSlow * kSlowStays));
}

// Of one or two blocks nobody can tell whether something held them up.
double trusted(double information, size_t blocks) {
  if (blocks == 0 || blocks >= 3) return information;
  return 1 / (1 / information + kHeldUpVariance / static_cast<double>(blocks));
}

}  // namespace

BlockNoise fit_noise(const std::vector<Stretch>& stretches) {
  BlockNoise best;
  double most = -1e300, freedom = kUsualBlocks;
  for (const Stretch& stretch : stretches) freedom += static_cast<double>(stretch.values.size()) - 1;
  double deviation = first_deviation(stretches);
  for (double slow = 0; slow < 0.85; slow += 0.1) {
    double misses = kUsualBlocks * kUsualDeviation * kUsualDeviation, determinants = 0;
    for (const Stretch& stretch : stretches) {
      if (stretch.values.size() < 2) continue;
      const Fit fit = fit_stretch(stretch, slow, deviation);
      misses += fit.misses;
      determinants += fit.log_determinant + std::log(fit.information);
    }
    const double variance = std::max(kLeastVariance, misses / freedom);
    const double likelihood =
        -0.5 * (determinants + freedom * std::log(variance)) - 0.5 * std::pow((slow - kUsualSlow) / kSlowDeviation, 2);
    if (likelihood > most) most = likelihood, best = {variance, slow, freedom};
  }
  return best;
}

StretchSummary summarise(const Stretch& stretch, const BlockNoise& noise) {
  const Fit fit = fit_stretch(stretch, noise.slow, std::sqrt(noise.variance));
  return {fit.mean, trusted(fit.information / noise.variance, stretch.values.size())};
}

double information_after(const Stretch& stretch, int more, const BlockNoise& noise) {
  std::vector<int> times = stretch.times;
  for (int i = 0; i < more; ++i) times.push_back(times.empty() ? 0 : times.back() + 1);
  const Cholesky factor = correlation(times, std::vector<double>(times.size(), 1.0), noise.slow);
  const std::vector<double> one = factor.lower_solve(std::vector<double>(times.size(), 1.0));
  return trusted(dot(one, one) / noise.variance, times.size());
}

}  // namespace redline::tune
