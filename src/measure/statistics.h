// Plain functions behind every comparison: interleaved blocks, medians, bootstrap intervals, verdicts. No clock, no
// state.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace redline::measure {

double median(std::span<const double> values);  // requires non-empty
double quantile(std::span<const double> values,
                double q);                    // linear between order statistics; requires non-empty, 0 <= q <= 1
double mean(std::span<const double> values);  // requires non-empty
// Median distance from the median, scaled to the standard deviation of normal noise.
double robust_spread(std::span<const double> values);

struct Interval {
  double low = 0, high = 0;
  bool contains(double value) const { return low <= value && value <= high; }
};
struct RatioEstimate {
  double ratio = 1;   // how many times faster B is than A: the median over blocks of A's seconds / B's seconds
  Interval interval;  // percentile bootstrap over blocks, widened for few of them
  int blocks = 0;
};

// Interval of `statistic` over resampled values; widened for small samples (Hesterberg 2015), Student's below 5 values.
// `statistic` must be a location (mean, median) for that.
using Statistic = std::function<double(std::span<const double>)>;
Interval bootstrap(std::span<const double> values, const Statistic& statistic, double confidence = 0.95,
                   uint64_t seed = 1);
Interval bootstrap_median(std::span<const double> values, double confidence = 0.95, uint64_t seed = 1);

// a[i] and b[i] are seconds per sample measured in the same interleaved block i; same length, non-empty, positive.
RatioEstimate compare_blocks(std::span<const double> a, std::span<const double> b, double confidence = 0.95,
                             uint64_t seed = 1);

enum class Verdict { Faster, NoEffect, Slower, TooNoisy };
// NoEffect when the interval contains 1; TooNoisy when it is wider than `widest` (relative) and contains 1.
Verdict judge(const RatioEstimate& estimate, double widest = 0.5);
const char* verdict_name(Verdict verdict);  // "faster", "no effect", "slower", "too noisy"

// The order of trials in block b: "A B B A", then "B A A B", ...; with more variants the first of them rotates. Each
// variant runs twice, at places that mirror each other, so a drift that is linear in time cancels.
std::vector<int> interleaved_order(int variants, int block);

}  // namespace redline::measure
