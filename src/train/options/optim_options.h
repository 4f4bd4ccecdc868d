// The `model.optim` section with its schedule: NeMo's names; mmcv's `optimizer` and `lr_config` as aliases.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/optim/optim_config.h"
#include "train/optim/parameter_rules.h"
#include "train/optim/schedule.h"

namespace redline::train {

// Whether the schedule's own counts are mmcv's micro-iterations instead of optimiser steps.
bool counts_micro_iterations(const SchedConfig& sched);

// What the schedule needs to know about the run.
struct RunLength {
  int64_t max_steps = -1;  // optimiser steps; -1 = unknown
  int64_t steps_per_epoch = 0;
  int64_t micro_per_step = 1;
  double effective_batch = 1;
};
// Throws ConfigError when a schedule needs a length nobody gave. `notes` gets sentences worth a warning (schedule
// longer than the run).
Schedule make_schedule(const OptimConfig& config, const RunLength& run, std::vector<std::string>* notes = nullptr);

}  // namespace redline::train
