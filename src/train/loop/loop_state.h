// Where a loop is, apart from tensors: everything that resume and replay need to continue bit by bit. Kept as JSON in a
// checkpoint's state.json (docs/checkpoints.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "data/loader.h"
#include "train/compile/compile_settings.h"
#include "train/guards/precision_guard.h"

namespace redline::train {

// What a log line's means are made of: sums since the last one, so that a resume in between changes no line.
struct LogSums {
  double weight = 0, loss = 0;
  std::map<std::string, double> metrics;
  int64_t steps = 0, samples = 0, items = 0, padded_items = 0;
};

struct LoopState {
  int64_t step = 0;           // optimiser steps done, skipped ones included
  int64_t epoch = 0;          // of the next step
  int64_t step_in_epoch = 0;  // done in that epoch
  int64_t samples_seen = 0, skipped_steps = 0, guard_actions = 0;
  uint64_t seed = 0;
  std::optional<uint64_t> plan_hash;  // none in a checkpoint of a version that hashed plans in another way
  double loss_scale = 1.0;
  int64_t growth_tracker = 0;
  std::string precision_name;  // that the run asks for, resolved
  PrecisionGuard::State precision;
  int64_t memory_piece_cost = 0;  // MemoryGuard::limit
  std::optional<double> early_best;
  int64_t early_waited = 0;
  bool pending_validation = false;  // a validation was due at `step` and has not been made
  std::map<std::string, double> last_validation;
  std::optional<LogSums> log_window;  // absent in checkpoints of older versions
  CompileProgress compile;            // a resumed run begins with the compiled steps that it had
  int64_t intra_op_threads = 0;
  std::string numerics;     // device::numerics_fingerprint()
  std::string config_hash;  // of the resolved config
  std::string task_state = "{}", monitor_state = "{}";

  std::string to_json() const;
  // Throws CheckpointError when the text is no loop state or of a version we do not know.
  static LoopState from_json(const std::string& text);
};

}  // namespace redline::train
