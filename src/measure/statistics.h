// Plain functions behind every comparison: interleaved blocks, medians, bootstrap intervals, verdicts. No clock, no state.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace redline::measure {

double median(std::span<const double> values);       // requires non-empty
double quantile(std::span<const double> values, double q);

struct Interval {
  double low = 0, high = 0;
};
struct RatioEstimate {
  double ratio = 1;  // how many times faster B is than A: median(A seconds) / median(B seconds)
  Interval interval;  // percentile bootstrap, paired by block
  int blocks = 0;
};
// a[i] and b[i] are seconds per sample measured in the same interleaved block i.
RatioEstimate compare_blocks(std::span<const double> a, std::span<const double> b, double confidence = 0.95, uint64_t seed = 1);

enum class Verdict { Faster, NoEffect, Slower, TooNoisy };
// NoEffect when the interval contains 1; TooNoisy when it is wider than `widest` (relative) and contains 1.
Verdict judge(const RatioEstimate& estimate, double widest = 0.5);
const char* verdict_name(Verdict verdict);

// The order of trials in block b: "A B B A", then "B A A B", ...
std::vector<int> interleaved_order(int variants, int block);

}  // namespace redline::measure
