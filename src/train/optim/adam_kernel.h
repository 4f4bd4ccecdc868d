// Adam and AdamW on float32 weights in CPU memory, in one pass: the gradient is divided while it is read, weight and
// moments move, and the pass tells whether every new weight is finite. LibTorch's fused kernel, which other devices and
// types use, writes the divided gradients back and leaves the check to a further pass over all weights.
#pragma once

#include <cstdint>
#include <vector>

namespace redline::train {

struct AdamScalars {
  float lr, beta1, beta2, eps, weight_decay, divisor;
  float step_size, bias2_sqrt;  // lr / (1 - beta1^t), sqrt(1 - beta2^t)
  bool decoupled, amsgrad, maximize;
};
// `step` counts from 1.
AdamScalars adam_scalars(double lr, double beta1, double beta2, double eps, double weight_decay, double divisor,
                         int64_t step);

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
