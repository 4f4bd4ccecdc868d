// Gradient checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): of a block of a network
// only its inputs are kept, and backward computes it again. Draws are keyed (task/context.h), so the second time gives
// the same bits; the block must defer nothing (BatchNorm statistics) and keep what it needs alive by itself.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "task/context.h"

namespace redline::models {

using Block = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;

// The block's outputs; different tensors, none of them an input. Without a gradient to compute it is the block itself.
std::vector<torch::Tensor> recomputed(const std::vector<torch::Tensor>& inputs, const Block& block);

// The same of a block that draws. Backward comes when the context is gone: what its draws are keyed by goes along.
using DrawingBlock = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&, task::Context&)>;
std::vector<torch::Tensor> recomputed(const std::vector<torch::Tensor>& inputs, const task::Context& ctx,
                                      const DrawingBlock& block);

}  // namespace redline::models
