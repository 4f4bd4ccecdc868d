// Adam and AdamW on float32 weights in CPU memory, in one pass: the gradient is scaled while it is read, weight and
// moments move, and the pass tells whether every new weight is finite. LibTorch's fused kernel, which other devices and
// types use, writes the divided gradients back and leaves the check to a further pass over all weights.
#pragma once

#include <cstdint>
#include <vector>

namespace redline::train {

// As the user gives them.
struct AdamRates {
  double lr, beta1, beta2, eps, weight_decay, divisor;
  bool decoupled, maximize;
};
// As the kernel needs them.
struct AdamScalars {
  float lr, beta1, beta2, weight_decay, gradient_scale;
  float step_size, eps;  // lr / (1 - beta1^t) and eps, both times sqrt(1 - beta2^t)
  bool decoupled;
};
// `step` counts from 1.
AdamScalars adam_scalars(const AdamRates& rates, int64_t step);

struct AdamTensor {
  float* value;
  const float* gradient;
  float *first, *second, *third;  // third: only with amsgrad
  int64_t count;
  AdamScalars scalars;
};

// False when a weight it wrote is not finite. The same bits for any number of threads.
bool adam_step(const std::vector<AdamTensor>& tensors);

}  // namespace redline::train
