// Is B faster than A? Decided block by block, as early as the noise allows. Looking after every block would find a
// "gain" by luck, so each look uses a stricter level than the 5 % the whole race may err (Bonferroni over the looks:
// after each of the first eight blocks, then after every fourth).
#pragma once

#include <vector>

#include "measure/statistics.h"

namespace redline::tune {

enum class RaceDecision { Continue, Better, NotBetter, Undecided };  // Undecided: a gain is neither shown nor ruled out

struct RaceOptions {
  double least_gain = 0.02;  // smaller gains are not worth keeping
  int least_blocks = 3, most_blocks = 8;
  double error = 0.05;
};

class Race {
 public:
  explicit Race(RaceOptions options = {}) : options_(options) {}
  // Seconds per sample of both in one interleaved block.
  void add(double a_seconds, double b_seconds);
  RaceDecision decide() const;
  measure::RatioEstimate estimate() const;  // of B against A, 95 % interval; requires a block
  // B's gain on the log scale as it is best believed: the blocks, weighed against what was predicted, which is known to
  // `prediction_error`. Few blocks may agree by luck, so they are trusted no more than `noise`, the deviation that
  // blocks had in other races. For choosing, not for claiming.
  struct Belief {
    double gain = 0, deviation = 0;
  };
  Belief believed(double predicted, double prediction_error, double noise) const;
  double deviation() const;  // between blocks, on the log scale; requires two
  int blocks() const { return static_cast<int>(a_.size()); }
  const std::vector<double>& a() const { return a_; }
  const std::vector<double>& b() const { return b_; }

 private:
  bool looks_at(int blocks) const;

  RaceOptions options_;
  std::vector<double> a_, b_;
};

}  // namespace redline::tune
