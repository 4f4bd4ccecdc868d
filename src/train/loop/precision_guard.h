// What happens when a step's loss or gradients are not finite: which precision runs the same samples next, when the
// fast precision is tried again, when to give up. A state machine over outcomes; no tensor, clock or thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/precision.h"

namespace redline::train {

enum class NonFinitePolicy { Rerun, Skip, Stop };

struct PrecisionGuardSettings {
  Precision requested = Precision::Fp32;
  NonFinitePolicy policy = NonFinitePolicy::Rerun;
  int64_t clean_steps = 20;      // in the safer precision before the fast one is tried again
  int64_t give_up_after = 3;     // failures of the fast precision in a row, then the safer one stays
  bool skip_persistent = false;  // non-finite even in fp32: skip the step instead of stopping
  int64_t max_skipped = 100;     // skipped steps in a row, then stop
};

enum class GuardAction {
  Rerun,  // the same samples, in precision()
  Skip,   // drop the step, go on
  Stop,   // diverged
};

class PrecisionGuard {
 public:
  explicit PrecisionGuard(const PrecisionGuardSettings& settings);

  Precision precision() const { return ladder_[level_]; }
  bool at_requested() const { return level_ == 0; }
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
  PrecisionGuardSettings settings_;
  std::vector<Precision> ladder_;  // from fast to safe
  size_t level_ = 0;
  int64_t clean_ = 0, failures_ = 0, since_return_ = 0, skipped_in_row_ = 0;
  int64_t repeats_ = 0;  // of this step in the safest precision
  bool stays_ = false;
};

// Splits a step's micro-batches when memory runs out and remembers the size that worked. Sizes are in the batch's own
// cost: padded items when the data counts them, else rows.
class MemoryGuard {
 public:
  int64_t limit() const { return limit_; }  // largest cost of a piece; 0 = whole micro-batches
  void restore(int64_t limit) { limit_ = limit; }
  // Rows of each piece for a micro-batch.
  std::vector<int64_t> pieces(int64_t rows, int64_t cost) const;
  // A piece of `rows` rows and `cost` did not fit. False when it cannot be split further.
  bool on_out_of_memory(int64_t rows, int64_t cost);

 private:
  int64_t limit_ = 0;
};

}  // namespace redline::train
