// The arithmetic of lift and splat, on indices that lie anywhere: in a plan (eager) or in tensors (a compiled step).
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace redline::models::lift_splat {

// SplatPlan's arrays; `cells` of all samples.
struct SplatIndex {
  int64_t depths = 0, cells = 0;
  const int32_t *cell_of, *begin, *points;
};

// Softmax of the first `depths` columns of each row [P, D + C].
torch::Tensor depth_chances(const torch::Tensor& camera, int64_t depths);
// [cells, C] of rows [P, D + C] and their chances [P, D]; all float32 and contiguous.
torch::Tensor splat_forward(const torch::Tensor& rows, const torch::Tensor& chances, const SplatIndex& index);
// The gradient of the rows.
torch::Tensor splat_backward(const torch::Tensor& grad, const torch::Tensor& rows, const torch::Tensor& chances,
                             const SplatIndex& index);

}  // namespace redline::models::lift_splat
