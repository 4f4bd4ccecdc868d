// The parts of a Swin block as single autograd nodes over tiles of rows: norm, products, attention and residual while a
// tile is in the cache. Pictures that stochastic depth leaves out are not computed at all.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "models/lift_splat/windows.h"
#include "task/context.h"

namespace redline::models::lift_splat {

struct SwinBlockImpl;
struct PatchMergingImpl;

namespace fused {

// CPU floats, and heads as wide as whole vectors.
bool fits(const torch::Tensor& x_MHWC, int64_t heads);

// What each picture's branch is multiplied by: 0 where stochastic depth leaves it out. The draws of ctx.drop_path.
struct Kept {
  std::vector<float> scale;    // [M]
  std::vector<int64_t> alive;  // pictures with a scale above 0
};
Kept kept(task::Context& ctx, double chance, const std::string& operation, const torch::Tensor& x_MHWC);

// x + scale * branch(norm(x)).
torch::Tensor attention_part(const SwinBlockImpl& block, const torch::Tensor& x_MHWC, const WindowMap& map, Kept kept);
torch::Tensor mlp_part(const SwinBlockImpl& block, const torch::Tensor& x_MHWC, Kept kept);
// Norm and product of four neighbours: [M, H, W, C] -> [M, H/2, W/2, 2C].
torch::Tensor merging_part(const PatchMergingImpl& merging, const torch::Tensor& x_MHWC);

}  // namespace fused
}  // namespace redline::models::lift_splat
