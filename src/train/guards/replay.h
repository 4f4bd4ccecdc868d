// When a commit has left something that is not finite: back to a copy of the training state in memory and forward again
// over the same samples.
#pragma once

#include <functional>
#include <string>

#include "measure/step_clock.h"
#include "train/guards/replay_copy.h"
#include "train/loop/training_state.h"

namespace redline::train {

class Replay {
 public:
  Replay(const LoopParts& parts, const GuardConfig& config, TrainingState& state, measure::StepClock& clock)
      : parts_(parts), config_(config), state_(state), clock_(clock) {}

  // A copy when one is due; `step_seconds` says how often that may be.
  void copy_if_due(double step_seconds);
  void copy_now(double step_seconds);
  // Another state was loaded: the copy is of a past that is gone.
  void forget();
  // Gives the copy's memory back to a step that needs it; false when there is none, or it is in use.
  bool give_back();
  bool running() const { return running_; }
  bool due_after(int64_t step) const { return step >= next_step_; }
  void give_up() { running_ = false; }

  // Restores the copy with `restore` and makes steps with `again` (which says what is damaged after one) until the loop
  // is where it was. `diverge` throws, with the last good state restored.
  struct Ways {
    std::function<void(const CheckpointState&)> restore;
    std::function<std::optional<std::string>()> again;
    std::function<void(const std::string& why)> diverge;
  };
  void repair(const std::string& damage, const Ways& ways);

 private:
  const LoopParts& parts_;
  const GuardConfig& config_;
  TrainingState& state_;
  measure::StepClock& clock_;
  ReplayCopy copy_;
  int64_t next_step_ = 0;  // at which a copy is due
  bool running_ = false;
};

}  // namespace redline::train
