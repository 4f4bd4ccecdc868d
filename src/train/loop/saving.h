// Checkpoints of a running loop: when one is due, and with which metric.
#pragma once

#include <optional>

#include "measure/step_clock.h"
#include "train/loop/training_state.h"

namespace redline::train {

class Saving {
 public:
  Saving(const LoopParts& parts, const LoopSettings& settings, TrainingState& state, measure::StepClock& clock)
      : parts_(parts), settings_(settings), state_(state), clock_(clock) {}

  // Intervals count from here; the state as it is needs no save.
  void start();
  void if_due(const CadenceDecision& decision);
  // The state as it is, unless it is saved; `wait`: until it is on the disk. Nothing without a store.
  void now(bool wait);
  // The state was validated: a checkpoint of it carries the metric.
  void validated() { validated_step_ = state_.at.step; }
  // What was saved is not this state: after a load, or when a validation was cut short since.
  void forget() { saved_step_ = -1; }
  void loaded();

 private:
  const LoopParts& parts_;
  const LoopSettings& settings_;
  TrainingState& state_;
  measure::StepClock& clock_;
  int64_t validated_step_ = -1, saved_step_ = -1;
  int64_t began_step_ = 0, began_ns_ = 0;  // of the last save
};

}  // namespace redline::train
