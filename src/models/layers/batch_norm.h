// BatchNorm whose running statistics wait for commit (design: compute, then commit), over rows [N, C] with channels
// last. With a collective the statistics span all ranks (SyncBatchNorm).
#pragma once

#include <torch/torch.h>

#include "task/context.h"

namespace redline::models {

struct BatchNormImpl : torch::nn::Module {
  explicit BatchNormImpl(int64_t channels, double epsilon = 1e-5, double momentum_of_new = 0.1);
  void initialise();

  // The plain path, differentiable through tensor operations. x is [..., C].
  torch::Tensor forward(const torch::Tensor& x, task::Context& ctx) const;
  // Hands the statistics of this batch (biased variance, over `count` rows in all ranks) to ctx.
  void defer(const torch::Tensor& mean, const torch::Tensor& biased_variance, double count, task::Context& ctx) const;

  torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
  double eps, momentum;
};
TORCH_MODULE(BatchNorm);

}  // namespace redline::models
