#include "tune/search/promise.h"

#include <algorithm>
#include <cmath>

namespace redline::tune {

namespace {

// How much of the machine's own drift a ratio shows, where the blocks do not say: regression over the cells of
// bench/results, tuner_drift gives 0.37; a prior that counts as much as blocks whose speed spread by a twentieth.
constexpr double kUsualShare = 0.37, kShareDeviation = 0.15, kUsualSpread = 0.05;
constexpr double kLeastHalf = 0.015;

std::vector<double> logs_of(std::span<const double> seconds) {
  std::vector<double> logs;
  for (const double value : seconds) logs.push_back(std::log(value));
  return logs;
}

double variance(const std::vector<double>& values) {
  if (values.size() < 3) return 0;
  const double middle = measure::mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return squares / static_cast<double>(values.size() - 1);
}

}  // namespace

measure::Interval promised_interval(const measure::RatioEstimate& confirmed, std::span<const double> reference,
                                    std::span<const double> tuned, std::span<const double> reference_seen) {
  // The share: log ratio against log of the machine's speed, both centred; the mean of both sides stands for the
  // machine, so that the noise of one side is not taken for it.
  const std::vector<double> a = logs_of(reference), b = logs_of(tuned);
  double both = kUsualShare * kUsualSpread * kUsualSpread, spread = kUsualSpread * kUsualSpread;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double ratio = a[i] - b[i] - (measure::mean(a) - measure::mean(b));
    const double machine = 0.5 * (a[i] + b[i] - measure::mean(a) - measure::mean(b));
    both += ratio * machine / static_cast<double>(a.size());
    spread += machine * machine / static_cast<double>(a.size());
  }
  const double share = std::hypot(std::clamp(both / spread, -1.0, 1.0), kShareDeviation);
  // Not a robust spread: the minutes in which the machine was slow are what another run may meet.
  const double drift = 1.96 * share * std::sqrt(variance(logs_of(reference_seen)));
  const double middle = std::log(confirmed.ratio);
  const auto wide = [&](double half) { return std::max(kLeastHalf, std::hypot(half * std::sqrt(2.0), drift)); };
  return {std::exp(middle - wide(middle - std::log(std::max(1e-9, confirmed.interval.low)))),
          std::exp(middle + wide(std::log(confirmed.interval.high) - middle))};
}

}  // namespace redline::tune
