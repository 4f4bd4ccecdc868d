#include "tune/search/race.h"

#include <algorithm>
#include <cmath>

namespace redline::tune {

namespace {

// Standard normal quantile for p in (0.5, 1): Abramowitz and Stegun 26.2.23, absolute error below 4.5e-4.
double normal_quantile(double p) {
  const double t = std::sqrt(-2.0 * std::log(1.0 - p));
  return t -
         (2.515517 + 0.802853 * t + 0.010328 * t * t) / (1.0 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t * t * t);
}

// Student's t quantile: exact for two degrees of freedom, else the Cornish-Fisher expansion (Abramowitz and
// Stegun 26.7.5). Three blocks have heavy tails that a bootstrap of three values cannot see.
double student_quantile(double p, double freedom) {
  if (freedom <= 2) return (2 * p - 1) / std::sqrt(2 * p * (1 - p));
  const double z = normal_quantile(p), z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  return z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * freedom * freedom * freedom);
}

struct LogRatio {
  double mean = 0, deviation = 0;  // of the blocks
};

LogRatio log_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  const auto count = static_cast<double>(a.size());
  LogRatio r;
  for (size_t i = 0; i < a.size(); ++i) r.mean += std::log(a[i] / b[i]) / count;
  for (size_t i = 0; i < a.size(); ++i) r.deviation += std::pow(std::log(a[i] / b[i]) - r.mean, 2);
  r.deviation = count > 1 ? std::sqrt(r.deviation / (count - 1)) : 1;
  return r;
}

struct LogInterval {
  double low, high;
};

// Interval of the mean log ratio over blocks.
LogInterval log_interval(const std::vector<double>& a, const std::vector<double>& b, double error) {
  const auto count = static_cast<double>(a.size());
  const LogRatio r = log_ratio(a, b);
  // At least 0.3 % spread: three blocks that agree by luck are not proof of a noiseless machine.
  const double deviation = std::max(0.003, r.deviation);
  const double width = student_quantile(1.0 - error / 2, count - 1) * deviation / std::sqrt(count);
  return {r.mean - width, r.mean + width};
}

}  // namespace

void Race::add(double a_seconds, double b_seconds) {
  a_.push_back(a_seconds);
  b_.push_back(b_seconds);
}

bool Race::looks_at(int blocks) const {
  return blocks >= options_.least_blocks && (blocks <= 8 || blocks % 4 == 0 || blocks == options_.most_blocks);
}

RaceDecision Race::decide() const {
  // Three times slower in any block needs no second look.
  for (size_t i = 0; i < a_.size(); ++i)
    if (b_[i] > 3 * a_[i]) return RaceDecision::NotBetter;
  if (blocks() < options_.most_blocks && !looks_at(blocks())) return RaceDecision::Continue;
  int looks = 0;
  for (int n = 1; n <= options_.most_blocks; ++n) looks += looks_at(n);
  const LogInterval interval = log_interval(a_, b_, options_.error / looks);
  const double least = std::log1p(options_.least_gain);
  if (interval.low > 0 && (interval.low + interval.high) / 2 > least) return RaceDecision::Better;
  if (interval.high < least) return RaceDecision::NotBetter;
  return blocks() >= options_.most_blocks ? RaceDecision::Undecided : RaceDecision::Continue;
}

double Race::deviation() const { return log_ratio(a_, b_).deviation; }

Race::Belief Race::believed(double predicted, double prediction_error, double noise) const {
  const LogRatio r = log_ratio(a_, b_);
  const double variance = std::pow(std::max({0.02, noise, r.deviation}), 2) / static_cast<double>(a_.size());
  const double prior = std::pow(prediction_error, 2);
  std::vector<double> logs;
  for (size_t i = 0; i < a_.size(); ++i) logs.push_back(std::log(a_[i] / b_[i]));
  // The middle of the blocks: one that a neighbour held up must not choose.
  return {(predicted * variance + measure::median(logs) * prior) / (variance + prior),
          std::sqrt(variance * prior / (variance + prior))};
}

measure::RatioEstimate Race::estimate() const { return measure::compare_blocks(a_, b_); }

}  // namespace redline::tune
