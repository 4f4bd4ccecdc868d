// One step, computed and committed: the pieces of its micro-batches through a StepProgram to one verdict that all ranks
// share, and from a sound verdict to new weights. Decides nothing about what is not sound: guards read the verdict.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "task/task.h"
#include "train/guards/memory_guard.h"
#include "train/optim/ema.h"
#include "train/optim/optimizer.h"
#include "train/step/agreement.h"
#include "train/step/noise_watch.h"
#include "train/step/step_feed.h"
#include "train/step/step_program.h"

namespace redline::train {

class StepEngine {
 public:
  struct Settings {
    double clip = 0.0;
    bool clip_by_value = false;
    // Weight decay moves along a cosine to this multiple of its start over so many steps; 0 steps: it stays.
    double decay_end = 1.0;
    int64_t decay_steps = 0;
  };
  struct Parts {
    task::Task& task;
    Optimizer& optimizer;
    Ema* ema;  // null: none
    StepFeed& feed;
    StepProgram& program;
    Agreement& agreement;
    measure::StepClock& clock;
  };
  StepEngine(const Parts& parts, const Settings& settings);

  // The next step's samples from here on; attempts at it see the same.
  void begin_step() { parts_.feed.begin_step(); }
  // Forward and backward of all pieces, as `memory` cuts them; weights stay as they are. `stop` is asked between
  // micro-batches.
  StepVerdict attempt(StepPass pass, const MemoryGuard& memory, const std::function<bool()>& stop);
  // Weights, moments and BatchNorm statistics. `step`: made before this one.
  void commit(StepVerdict& verdict, int64_t step);
  void forget_gradients() { parts_.optimizer.clear_gradients(); }
  // From now on gradients are also looked at by this; null: no longer. Nothing that is computed changes.
  void watch_noise(NoiseWatch* watch) { noise_ = watch; }

  // Of the last attempt, for diagnosis and for the log of samples.
  const StepPass& pass() const { return pass_; }
  const std::vector<const task::Batch*>& batches() const { return batches_; }
  // The piece that was being computed; rows 0 before the first.
  int64_t piece_rows() const { return piece_rows_; }
  int64_t piece_cost() const { return piece_cost_; }
  int64_t num_micro_batches() const { return parts_.feed.num_micro_batches(); }

 private:
  void compute(const task::Batch& piece, bool last);
  bool run_pieces(const MemoryGuard& memory, const std::function<bool()>& stop);
  void check(StepVerdict& verdict);

  Parts parts_;
  Settings settings_;
  task::BatchSchema schema_;
  bool schema_checked_ = false;
  StepPass pass_;
  std::vector<const task::Batch*> batches_;
  task::Batch poisoned_;  // by a test, in place of the batch it is a copy of
  int64_t piece_rows_ = 0, piece_cost_ = 0;
  std::string shortage_;  // over several ranks: what this one had too little memory for
  int64_t short_rows_ = 0, short_cost_ = 0;
  NoiseWatch* noise_ = nullptr;
};

}  // namespace redline::train
