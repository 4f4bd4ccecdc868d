// Interleaved timing of two variants in one process: A B B A blocks, medians, bootstrap interval of the ratio.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <vector>

#include "core/time.h"
#include "measure/statistics.h"

namespace redline::bench {

struct Comparison {
  measure::RatioEstimate estimate;  // how many times faster b is than a
  double a_seconds = 0, b_seconds = 0;
};

// Each variant runs `repeats` times per turn; the first block warms up and is dropped.
inline Comparison compare(const std::function<void()>& a, const std::function<void()>& b, int blocks, int repeats) {
  std::vector<double> seconds[2];
  const std::function<void()>* variants[2] = {&a, &b};
  for (int block = 0; block <= blocks; ++block) {
    double sums[2] = {0, 0};
    for (int which : measure::interleaved_order(2, block)) {
      const int64_t begin = now_ns();
      for (int i = 0; i < repeats; ++i) (*variants[which])();
      sums[which] += seconds_between(begin, now_ns()) / (2.0 * repeats);
    }
    if (block == 0) continue;
    seconds[0].push_back(sums[0]);
    seconds[1].push_back(sums[1]);
  }
  return {measure::compare_blocks(seconds[0], seconds[1]), measure::median(seconds[0]), measure::median(seconds[1])};
}

inline void print_comparison(const char* name, const char* a, const char* b, const Comparison& c) {
  fmt::print("{:<44} {} {:.3f} ms, {} {:.3f} ms: {:.3f}x [{:.3f}, {:.3f}] over {} blocks\n", name, a, c.a_seconds * 1e3,
             b, c.b_seconds * 1e3, c.estimate.ratio, c.estimate.interval.low, c.estimate.interval.high,
             c.estimate.blocks);
}

}  // namespace redline::bench
