// Attempts at one step until it is sound, then its commit. What is not sound is decided here, from the verdict alone:
// smaller pieces when memory ran out, a safer precision when a number is not finite, the step left out, or the end.
#pragma once

#include <functional>
#include <string>

#include "train/guards/replay.h"
#include "train/step/step_engine.h"

namespace redline::train {

class GuardedStep {
 public:
  // `diverge` saves what is good and throws DivergedError.
  GuardedStep(const LoopParts& parts, const LoopSettings& settings, TrainingState& state, StepEngine& engine,
              Replay& replay, std::function<void(const std::string& why)> diverge)
      : parts_(parts),
        settings_(settings),
        state_(state),
        engine_(engine),
        replay_(replay),
        diverge_(std::move(diverge)) {}

  // committed, stopped (nothing has changed), or left out. Throws OutOfMemoryError, DivergedError, DataError.
  StepVerdict make();
  // What the commit has damaged, on any rank. With several and not `now` it is asked together with the next step's
  // verdict: damaged_before there, then late_damage().
  std::optional<std::string> damage(const StepVerdict& step, bool now = true);
  bool damage_pending() const { return pending_.has_value(); }
  std::string late_damage();

 private:
  void on_out_of_memory(const StepVerdict& step);
  void on_empty();
  GuardAction on_non_finite(const StepVerdict& step);
  void on_commit();

  const LoopParts& parts_;
  const LoopSettings& settings_;
  TrainingState& state_;
  StepEngine& engine_;
  Replay& replay_;
  std::function<void(const std::string& why)> diverge_;
  int64_t empty_in_row_ = 0;
  std::optional<std::string> pending_;  // damage of this rank that the others have not heard of
};

}  // namespace redline::train
