// Depthwise convolution 7 x 7 with padding 3 over maps [N, H, W, C]: forward, input gradient and weight gradient.
//
// One unit of work is a vector of channels (one cache line a pixel) of a few pictures. Its rows are copied into a small
// padded plane, where a register tile of up to eight outputs slides along a row: each loaded pixel serves up to seven
// taps. The same numbers are added in the same order whatever the number of threads.
//
// Weights are [49][C] here, taps ordered (row, column).
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace redline::models::convnext {

inline constexpr int64_t kSide = 7, kPad = 3, kTaps = kSide * kSide;

struct MapShape {
  int64_t images = 0, height = 0, width = 0, channels = 0;
  int64_t rows() const { return images * height * width; }
  int64_t numel() const { return rows() * channels; }
};

// out = start + sum over taps of weight * x shifted. `bias` [C] or `residual` (a map) is what it starts from; both may
// be null.
void depthwise_sum(const MapShape& shape, const float* x, const float* weight, const float* bias, const float* residual,
                   float* out);
// weight_grad [49][C] and bias_grad [C], written.
void depthwise_weight_grad(const MapShape& shape, const float* x, const float* grad, float* weight_grad,
                           float* bias_grad);

// [C, 1, 7, 7] -> [49][C], taps in reverse order if `flipped` (the input gradient is the convolution with those).
torch::Tensor taps_first(const torch::Tensor& weight, bool flipped);
// [49][C] -> [C, 1, 7, 7].
torch::Tensor channels_first(const torch::Tensor& taps);

// The layer by itself, differentiable. x is [N, H, W, C] float on the CPU.
torch::Tensor depthwise7(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

// For tests: the narrow vectors also on a machine that has wide ones.
void use_narrow_depthwise(bool on);

}  // namespace redline::models::convnext
