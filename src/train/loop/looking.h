// What a loop looks at between steps: the validation data, with the averaged weights where there are any, and the
// task's monitor with its plots.
#pragma once

#include <string>
#include <vector>

#include "measure/step_clock.h"
#include "train/loop/training_state.h"
#include "train/loop/validation.h"

namespace redline::train {

class Looking {
 public:
  Looking(const LoopParts& parts, const LoopSettings& settings, TrainingState& state, measure::StepClock& clock)
      : parts_(parts), settings_(settings), state_(state), clock_(clock) {}

  // True when the validation data was gone through; a stop leaves it pending.
  bool validate();
  // The first batches before training, so that a fault in validation shows at once; nothing is recorded.
  void try_validation();
  // One pass, nothing recorded.
  ValidationResult measure(Precision precision, const CountOrShare& limit);
  void monitor(bool plot);
  const std::string& early_stop() const { return early_stop_; }  // why training should end; empty: it should not

 private:
  ValidationResult measure(data::Loader& loader, Precision precision, const CountOrShare& limit);
  std::vector<std::string> draw_plots();
  void watch(const std::map<std::string, double>& metrics);

  const LoopParts& parts_;
  const LoopSettings& settings_;
  TrainingState& state_;
  measure::StepClock& clock_;
  MemoryGuard memory_;  // of validation
  std::string early_stop_;
  bool plots_fail_ = false;
};

}  // namespace redline::train
