// What every rank of a run does before its loop, in one process as in several.
#pragma once

#include "train/job.h"
#include "train/loop/loop_state.h"

namespace redline::train {

// What the first start resolved from its machine stays, so that the run continues bit by bit.
void take_resolved_values(Job& job, const LoopState& state);
// Of load_from; nothing without. Throws CheckpointError when they do not fit.
void load_initial_weights(const Job& job, task::Task& task);
// Of what the host has left, this rank's share.
int64_t available_bytes(const Job& job);

}  // namespace redline::train
