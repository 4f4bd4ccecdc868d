// A learning-rate range test (Smith 2015, "Cyclical Learning Rates for Training Neural Networks"): the rate rises by
// equal factors from step to step, and the losses say where training begins to learn and where it breaks.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace redline::train {

struct LrPoint {
  double lr = 0, loss = 0;
  double smoothed = 0;  // filled by judge_lr_range
};

struct LrRange {
  std::vector<LrPoint> points;     // up to where it broke
  std::optional<double> steepest;  // where the loss falls fastest against the logarithm of the rate
  std::optional<double> lowest;    // where the loss is lowest
  std::optional<double> broke;     // the first rate at which the loss was far above its lowest, or not finite
  std::string sentence;
};

// Points in the order of the steps, rates rising.
LrRange judge_lr_range(std::vector<LrPoint> points);

}  // namespace redline::train
