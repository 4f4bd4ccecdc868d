// A parameter as the right operand of bfloat16 products, made ready once for each of its values: micro-batches, forward
// passes and the backward passes of one optimiser step share it. A value is known by the tensor's version, so whoever
// writes a parameter's memory without LibTorch's operators must raise it (the optimiser's own kernels do).
//
// Kept for the process, by storage: what belonged to memory that is gone goes at the next new entry. Any thread may
// ask.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace redline::models {

// As bf16_right_operand (gemm_bf16.h). A parameter or a view of one is remembered, anything else made again each time.
torch::Tensor packed_weight(const torch::Tensor& weight, bool transposed);

struct PackedWeightStats {
  int64_t entries = 0, bytes = 0, made = 0, found = 0;
};
PackedWeightStats packed_weight_stats();
void forget_packed_weights();

}  // namespace redline::models
