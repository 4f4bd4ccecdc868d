// A copy of the whole training state in memory, into buffers that are reused: what replay starts from when weights or
// optimiser state are found damaged after a commit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "train/checkpoint/store.h"

namespace redline::train {

class ReplayCopy {
 public:
  bool exists() const { return exists_; }
  int64_t step() const { return step_; }
  // Copies; throws c10::OutOfMemoryError when the first copy does not fit, and then holds nothing.
  void take(const CheckpointState& state, int64_t step);
  const CheckpointState& state() const { return state_; }
  void drop();

 private:
  bool exists_ = false;
  int64_t step_ = 0;
  CheckpointState state_;
};

// Steps between copies so that they cost at most `overhead` of the time; at least 10. Pure.
int64_t copy_interval(double copy_seconds, double step_seconds, double overhead);

}  // namespace redline::train
