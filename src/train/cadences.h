// How often a run logs, monitors, validates and saves, counted over a long run.
#pragma once

#include <cstdint>

#include "measure/cadences.h"

namespace redline::train {

struct LoopSettings;

// Occurrences per step. Checkpoints that follow a clock are counted where one is known to take `checkpoint_seconds`
// and a step `step_seconds`.
measure::PerCadence cadences_per_step(const LoopSettings& settings, int64_t steps_per_epoch,
                                      double checkpoint_seconds = 0, double step_seconds = 0);

}  // namespace redline::train
