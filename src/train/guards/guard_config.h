// The options `trainer.guards`: what happens on NaN and out of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/fields.h"

namespace redline::train {

struct GuardConfig {
  std::string non_finite = "rerun", persistent = "stop";
  int64_t clean_steps = 20, give_up_after = 3, max_skipped_steps = 100;
  bool out_of_memory = true, check_weights = true;
  std::optional<int64_t> snapshot_every_n_steps;
  double snapshot_overhead = 0.002;
  static config::Table<GuardConfig> fields();
};

}  // namespace redline::train
