// What happens when a step's loss or gradients are not finite: which precision runs the same samples next, when the
// fast precision is tried again, when to give up. A state machine over outcomes; no tensor, clock or thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/precision.h"
#include "train/guards/guard_config.h"

namespace redline::train {

enum class GuardAction {
  Rerun,  // the same samples, in precision()
  Skip,   // drop the step, go on
  Stop,   // diverged
};

class PrecisionGuard {
 public:
  PrecisionGuard(const GuardConfig& config, Precision requested);

  Precision precision() const { return ladder_[level_]; }
  bool stays() const { return stays_; }

  // The step that just ran in precision() was not finite.
  GuardAction on_non_finite();
  // The step was committed; true when the fast precision is tried again from the next step on.
  bool on_commit();
  // The step was skipped.
  void on_skip() { ++skipped_in_row_; }

  // Everything a checkpoint needs.
  struct State {
    int64_t level = 0, clean = 0, failures = 0, since_return = 0, skipped_in_row = 0;
    bool stays = false;
  };
  State state() const;
  void restore(const State& state);

 private:
  GuardConfig config_;
  std::vector<Precision> ladder_;  // from fast to safe
  size_t level_ = 0;
  int64_t clean_ = 0, failures_ = 0, since_return_ = 0, skipped_in_row_ = 0;
  int64_t repeats_ = 0;  // of this step in the safest precision
  bool stays_ = false;
};

}  // namespace redline::train
