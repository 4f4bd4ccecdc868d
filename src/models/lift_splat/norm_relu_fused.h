// relu(BatchNorm(x) + residual) in one pass over the rows after the statistics, and two passes backward; LibTorch's
// separate operators take five and seven. Which elements ReLU let through is read from the result, so nothing else is
// kept.
#pragma once

#include <torch/torch.h>

#include "models/layers/batch_norm.h"
#include "task/context.h"

namespace redline::models::lift_splat::fused {

// Channels-last maps in the memory of this process, statistics of this rank alone.
bool norm_fits(const torch::Tensor& x_MCHW, const task::Context& ctx);
torch::Tensor norm_relu(const BatchNorm& norm, const torch::Tensor& x_MCHW, const torch::Tensor& residual, bool relu,
                        task::Context& ctx);

}  // namespace redline::models::lift_splat::fused
