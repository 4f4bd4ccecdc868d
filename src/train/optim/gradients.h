// One read-only pass over all gradients before commit: are they finite, and how long is the gradient. Unscaling (loss
// scale, total weight) and clipping are not written back: they become one divisor that the fused optimiser applies
// while it reads the gradients.
#pragma once

#include <torch/torch.h>

#include <span>
#include <vector>

namespace redline::train {

struct GradientCheck {
  bool finite = true;
  double norm = 0.0;            // L2 of the raw gradients
  size_t first_non_finite = 0;  // index into the tensors, when not finite
};

// Undefined tensors are passed over. The norm is summed in double over fixed blocks in a fixed order: equal for any
// thread count.
GradientCheck check_gradients(std::span<const torch::Tensor> gradients);

// The plain reference of the above.
GradientCheck check_gradients_plain(std::span<const torch::Tensor> gradients);

// Whether all elements are finite; index of the first tensor that is not, else nullopt. For weights and optimiser
// state.
std::optional<size_t> first_non_finite(std::span<const torch::Tensor> tensors);

// PyTorch's clip_grad_norm_: the factor in (0, 1] for gradients of this (unscaled) norm; max_norm 0 = off.
double clip_factor(double norm, double max_norm);

}  // namespace redline::train
