// A parameter as the right operand of bfloat16 products. A value that is asked for again (by further micro-batches,
// recomputed layers, validation) is made ready once and kept until the parameter changes; one that is asked for once a
// step is not kept, because a copy of every weight in two orders would take back what rounded activations save. Which
// of both it is follows from what happened to the value before: the first step of a run with several micro-batches
// makes each twice.
//
// A value is known by the tensor's version, so whoever writes a parameter's memory without LibTorch's operators must
// raise it (the optimiser's own kernels do).
//
// Kept for the process, by storage: what belonged to memory that is gone goes at the next new entry. Any thread may
// ask.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace redline::models {

// As bf16_right_operand (gemm_bf16.h). A parameter or a view of one may be kept, anything else is made again each time.
torch::Tensor packed_weight(const torch::Tensor& weight, bool transposed);

struct PackedWeightStats {
  int64_t entries = 0, bytes = 0, made = 0, found = 0;  // parameters known (in each order), bytes of those kept
};
PackedWeightStats packed_weight_stats();
void forget_packed_weights();

}  // namespace redline::models
