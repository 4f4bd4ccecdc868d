// The compute half of a step, as the loop sees it: pieces in, gradients (in the parameters) and sums out. Eager is one
// way to do it; a compiled step is another.
#pragma once

#include <cstdint>

#include "core/precision.h"
#include "task/batch.h"
#include "train/step/step_verdict.h"

namespace redline::train {

struct StepPass {
  uint64_t seed = 0;
  int64_t step = 0;  // steps made before this one: keys the draws
  Precision precision = Precision::Fp32;
  double loss_scale = 1.0;
  int64_t expected_pieces = 1;
};

class StepProgram {
 public:
  virtual ~StepProgram() = default;
  virtual void begin(const StepPass& pass) = 0;
  // Adds the gradients of one piece, which may be without samples; `last`: no other follows in this step. Throws
  // ConfigError when the loss cannot be learned from (no gradient, wrong shape), and what LibTorch throws
  // (c10::OutOfMemoryError).
  virtual void add(const task::Batch& piece, bool last) = 0;
  // In place of add(), or after it has thrown: only what other ranks wait for. Nothing for one process.
  virtual void skip(bool last) { static_cast<void>(last); }
  // Of this rank: sums, statistics and the divisor's share that is not the weight (see EagerStep).
  virtual StepVerdict finish() = 0;
  // Of the pieces so far, as finish() would say it now; may wait for the device.
  virtual double weight_so_far() const = 0;
  // Gradients are too large by this factor once the weight of all ranks is known.
  virtual double divisor(double weight) const = 0;
  // Something that add() waited for was cut short by a request to stop: the pass is to be given up.
  virtual bool interrupted() const { return false; }
  // After an exception or a stop: frees what the unfinished pass holds.
  virtual void abandon() = 0;
};

}  // namespace redline::train
