// A 3x3 convolution of an enlarged map, as it stands in every decoder: conv(enlarge(x)). Both are linear, so the
// channels are mixed first, on the small map, once for each of the nine taps, and the nine results are enlarged and
// added in their places: the products shrink by factor^2, and the enlarged map with all its channels is never made.
// Only the order of additions differs from the two operators.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace redline::models::lift_splat {

// One axis of the enlargement (bilinear, corners on corners) under a kernel of three taps with a margin of zeros.
struct EnlargedAxis {
  struct Tap {
    int32_t shift;  // which of the kernel's three
    int32_t at;     // place of the other map
    float weight;
  };
  EnlargedAxis(int64_t small, int64_t factor);
  int64_t small, large;
  std::vector<std::vector<Tap>> sources;  // for each place of the large map, places of the small one
  std::vector<std::vector<Tap>> targets;  // the transpose
};

namespace fused {

bool enlarged_conv_fits(const torch::Tensor& x_MCHW);
// base + conv3x3(enlarge(x, factor), weight) with a margin of one; base may be undefined. weight [O, C, 3, 3]; the
// result is float32 and channels last.
torch::Tensor enlarged_conv(const torch::Tensor& x_MCHW, const torch::Tensor& weight, int64_t factor,
                            const torch::Tensor& base);

}  // namespace fused
}  // namespace redline::models::lift_splat
