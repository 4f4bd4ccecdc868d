// All that is known of one step: what was decided, what its pieces add up to, what became of it. A program fills in its
// sums, an Agreement makes them equal on all ranks, guards and commit read nothing else.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "task/context.h"

namespace redline::train {

struct StepVerdict {
  bool stop = false;            // a signal: the step is given up and made again after a resume
  bool out_of_memory = false;   // some piece did not fit: nothing was computed
  bool damaged_before = false;  // the commit before left something that is not finite on some rank: nothing counts
  bool finite = true;           // loss, gradients and statistics
  std::string problem;          // what did not fit, or the first gradient that is not finite

  double value_sum = 0.0;  // of loss times weight
  double weight = 0.0;     // 0: nothing to learn from
  std::map<std::string, double> metric_sums;
  int64_t samples = 0, items = 0, padded_items = 0;
  int64_t pieces = 0;  // with samples
  std::vector<task::BatchNormUpdate> batch_norm;

  double divisor = 1.0;  // gradients are this many times too large
  double grad_norm = 0.0;
  double learning_rate = 0.0;
  uint32_t flags = 0;  // measure::kStep...
  bool committed = false, weights_finite = true;

  // Weighted means; not a number when the weight is none.
  double loss() const { return weight > 0 ? value_sum / weight : weight == 0 ? 0.0 : std::nan(""); }
  double metric(const std::string& name) const { return metric_sums.at(name) / weight; }
};

}  // namespace redline::train
