// The training loop: compute, then commit, then what is due (log, look, save). Knows a task, loaders, an observer and
// plain settings; no files, no model. Several may live in one process, one after another or in turns.
//
// Threads: one. Every step ends either committed, skipped (counted), or with an exception after which the state is that
// of the last committed step.
#pragma once

#include "measure/step_clock.h"
#include "train/compile/compiled_step.h"
#include "train/guards/guarded_step.h"
#include "train/loop/fit_result.h"
#include "train/loop/looking.h"
#include "train/loop/recording.h"
#include "train/loop/saving.h"

namespace redline::train {

class Trainer {
 public:
  Trainer(const LoopParts& parts, LoopSettings settings);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // For a run that opens its record and its store only after load() has accepted a checkpoint.
  void attach(CheckpointStore* store, LoopObserver* observer);

  // Until a limit, early stopping or a signal. Saves at the end. Throws DivergedError, OutOfMemoryError, and what
  // loader, task or disk throw; the state is then that of the last committed step.
  FitResult fit();
  // n steps with their cadences, whatever the limits say.
  void run_steps(int64_t count);

  // The whole state as a checkpoint holds it. load() needs equal names and shapes and moves the loader.
  CheckpointState state() const { return state_.checkpoint(); }
  void load(const CheckpointState& state);
  const LoopState& position() const { return state_.at; }
  const Optimizer& optimizer() const { return *state_.optimizer; }
  int64_t steps_per_epoch() const { return steps_this_epoch_; }
  const LoopSettings& settings() const { return settings_; }
  measure::StepClock& clock() { return clock_; }
  int64_t num_packages() const { return program_.num_packages(); }  // compiled steps in use

 protected:
  void enter_epoch(int64_t epoch, int64_t step);
  void advance(const StepVerdict& step);

  Alone alone_;
  LoopParts parts_;
  Agreement& agreement_;
  LoopSettings settings_;
  LoopObserver silent_;
  measure::StepClock clock_;
  TrainingState state_;
  StepFeed feed_;
  std::unique_ptr<GradientSync> sync_;  // null: one process
  CompiledStep program_;
  StepEngine engine_;
  Replay replay_;
  GuardedStep guarded_;
  Recording recording_;
  Looking looking_;
  Saving saving_;
  CadenceDecision allowed_{true, true, true, true, true};  // what a trial leaves out
  bool may_save_ = true;

 private:
  void one_step();
  void repair(const std::string& damage);
  void restore(const CheckpointState& state);
  [[noreturn]] void diverged(const std::string& why);
  void look_after_epoch(const CadenceDecision& decision);
  bool needs_sound_weights(const CadencePosition& position) const;
  CadenceDecision after_step(const StepVerdict& step, const CadencePosition& position);

  int64_t steps_this_epoch_ = 0;
  double last_loss_ = 0;
};

}  // namespace redline::train
