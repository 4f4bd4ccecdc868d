// The same state on all ranks before the first step.
#pragma once

#include "train/checkpoint/store.h"
#include "train/ranks/rank_group.h"

namespace redline::train {

// Weights and buffers become rank 0's. Throws ConfigError that names the rank whose model has other names or shapes, or
// whose optimiser state is another: it has read another checkpoint, or weights that this one has not.
void equal_state(RankGroup& group, const CheckpointState& state);

}  // namespace redline::train
