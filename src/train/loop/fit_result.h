// How a run of the loop ended.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "train/loop/cadence.h"

namespace redline::train {

struct FitResult {
  StopReason stop = StopReason::None;
  std::string early_stop;  // why, when early stopping ended the run
  int stop_signal = 0;     // of signals.h: resume continues
  int64_t steps = 0, epochs = 0;
  double last_loss = 0.0;
  std::map<std::string, double> last_validation;
};

}  // namespace redline::train
