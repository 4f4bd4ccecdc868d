#include "measure/time_to_loss.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "measure/student.h"

namespace redline::measure {

std::optional<double> samples_to_reach(const HeldOutCurve& curve, double level) {
  for (size_t i = 0; i < curve.losses.size(); ++i) {
    if (!(curve.losses[i] <= level)) continue;
    if (i == 0) return curve.samples[0];
    const double fall = curve.losses[i - 1] - curve.losses[i];
    const double share = std::isfinite(fall) && fall > 0 ? (curve.losses[i - 1] - level) / fall : 1;
    return curve.samples[i - 1] + share * (curve.samples[i] - curve.samples[i - 1]);
  }
  return std::nullopt;
}

std::optional<double> pair_efficiency(const HeldOutCurve& reference, const HeldOutCurve& candidate,
                                      std::optional<double> level) {
  if (reference.losses.empty() || candidate.losses.empty()) return std::nullopt;
  const double common = std::max(reference.losses.back(), candidate.losses.back());
  const double wanted = level && *level > common ? *level : common;
  const auto theirs = samples_to_reach(reference, wanted), mine = samples_to_reach(candidate, wanted);
  if (!theirs || !mine || !(*theirs > 0) || !(*mine > 0)) return std::nullopt;
  return *theirs / *mine;
}

namespace {

struct MeanAndError {
  double mean = 0, error = 0;
};
MeanAndError mean_of_differences(std::span<const double> a, std::span<const double> b) {
  std::vector<double> differences;
  for (size_t i = 0; i < a.size(); ++i) differences.push_back(a[i] - b[i]);
  MeanAndError out{mean(differences), 0};
  double squares = 0;
  for (const double one : differences) squares += (one - out.mean) * (one - out.mean);
  const auto n = static_cast<double>(differences.size());
  out.error = std::sqrt(squares / (n - 1) / n);
  return out;
}

constexpr double kLeastWorth = 1.0 / 16, kMostWorth = 4;  // beyond two lengths either way a line says nothing

}  // namespace

std::optional<RatioEstimate> schedule_efficiency(std::span<const double> half, std::span<const double> whole,
                                                 std::span<const double> candidate) {
  const size_t n = half.size();
  if (n < 2 || whole.size() != n || candidate.size() != n) return std::nullopt;
  const MeanAndError slope = mean_of_differences(half, whole), lost = mean_of_differences(candidate, whole);
  if (!std::isfinite(lost.mean) || !(slope.mean > 2 * slope.error) || !(slope.mean > 0)) return std::nullopt;
  const double halvings = lost.mean / slope.mean;
  const double error = std::hypot(lost.error / slope.mean, halvings * slope.error / slope.mean);
  const double reach = student_quantile(0.975, static_cast<int>(n) - 1) * error;
  const auto worth = [](double by) { return std::clamp(std::exp2(-by), kLeastWorth, kMostWorth); };
  return RatioEstimate{worth(halvings), {worth(halvings + reach), worth(halvings - reach)}, static_cast<int>(n)};
}

RatioEstimate mean_ratio(std::span<const double> ratios) {
  REDLINE_CHECK(!ratios.empty(), "a mean needs a value");
  std::vector<double> logs;
  for (const double ratio : ratios) logs.push_back(std::log(ratio));
  const double middle = mean(logs);
  double squares = 0;
  for (const double log : logs) squares += (log - middle) * (log - middle);
  RatioEstimate out;
  out.ratio = std::exp(middle);
  out.blocks = static_cast<int>(logs.size());
  if (logs.size() == 1) {
    out.interval = {out.ratio / 2, out.ratio * 2};  // one pair proves nothing
    return out;
  }
  const auto n = static_cast<double>(logs.size());
  const double half = student_quantile(0.975, out.blocks - 1) * std::sqrt(squares / (n - 1) / n);
  out.interval = {std::exp(middle - half), std::exp(middle + half)};
  return out;
}

RatioEstimate product(const RatioEstimate& a, const RatioEstimate& b) {
  const auto part = [](double from, double to) {
    return std::log(std::max(1e-9, to)) - std::log(std::max(1e-9, from));
  };
  RatioEstimate out;
  out.ratio = a.ratio * b.ratio;
  const double low = std::hypot(part(a.interval.low, a.ratio), part(b.interval.low, b.ratio));
  const double high = std::hypot(part(a.ratio, a.interval.high), part(b.ratio, b.interval.high));
  out.interval = {out.ratio * std::exp(-low), out.ratio * std::exp(high)};
  out.blocks = std::min(a.blocks, b.blocks);
  return out;
}

double noise_efficiency(std::span<const NoiseScale> noise, double reference, double batch) {
  if (noise.empty()) return 1;
  double sum = 0;
  for (const NoiseScale& one : noise) sum += (one.noise + batch) / (one.noise + reference);
  return static_cast<double>(noise.size()) / sum;
}

}  // namespace redline::measure
