// Lion and Adafactor, one tensor at a time with LibTorch's operators, on any device. Their temporaries are of one
// tensor's size: unlike Adam's and SGD's kernels a step of theirs takes memory.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace redline::train {

struct OtherRates {
  double lr, beta1, beta2, eps, weight_decay;
  double gradient_scale;  // one over the divisor; negative to climb
};

// Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2: the sign of an average, decoupled
// decay. `average` is of the parameter's shape.
void lion_step(torch::Tensor value, const torch::Tensor& grad, torch::Tensor average, const OtherRates& rates);

// Shazeer and Stern 2018, "Adafactor", with the rate given: steps relative to the parameter's size, the second moment
// of a matrix from its rows and columns alone. As torch.optim.Adafactor (beta2_decay -0.8, d 1, eps2 1e-3), whose
// formulas these are. `rows` and `columns` as factored_shapes says; `step` counts from 1.
void adafactor_step(torch::Tensor value, const torch::Tensor& grad, torch::Tensor rows, torch::Tensor columns,
                    int64_t step, const OtherRates& rates);
// [..., n, 1] and [..., 1, m] of a parameter [..., n, m]; a vector's own shape and [0].
std::pair<std::vector<int64_t>, std::vector<int64_t>> factored_shapes(const torch::Tensor& value);

}  // namespace redline::train
