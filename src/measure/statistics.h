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

// How a block resembles the one before it, and how many blocks that is known from. Few blocks cannot tell it, so what
// is known from others counts as well; the default is what a shared machine usually shows (bench/results, tuner_drift).
struct BlockCorrelation {
  double lag_one = 0.4, blocks = 8;
};

// a[i] and b[i] are seconds per sample measured in the same interleaved block i; same length, non-empty, positive.
// Blocks that resemble their neighbours know less than as many independent ones: the interval is wider by that.
RatioEstimate compare_blocks(std::span<const double> a, std::span<const double> b, double confidence = 0.95,
                             uint64_t seed = 1, const BlockCorrelation& known = {});
// How many times wider the interval of a mean of these is than if each were new.
double correlation_factor(std::span<const double> values, const BlockCorrelation& known = {});

inline constexpr double kNoEffect = 0.02;  // relative: closer to 1 than this is no effect
enum class Verdict { Faster, NoEffect, Slower, Undecided };
// NoEffect when the interval lies within kNoEffect of 1, whichever side; Undecided when it contains 1 and does not.
Verdict judge(const RatioEstimate& estimate);
const char* verdict_name(Verdict verdict);  // "faster", "no effect", "slower", "undecided"

// The order of trials in block b: "A B B A", then "B A A B", ...; with more variants the first of them rotates. Each
// variant runs twice, at places that mirror each other, so a drift that is linear in time cancels.
std::vector<int> interleaved_order(int variants, int block);

}  // namespace redline::measure
