// The transforms of F(4x4, 3x3) for one tile or one output channel, over all channels that lie side by side. Channel
// counts are multiples of 16. Results of position p of the 36 go to `to + p * stride`.
#pragma once

#include <cstdint>

namespace redline::models::lift_splat::winograd {

inline constexpr int64_t kPositions = 36, kLanes = 16;

// B^T d B of 36 input pixels.
void input_tile(const float* const pixels[36], int64_t channels, float* to, int64_t stride);
// A^T m A: 36 positions at `from + p * stride` to 16 output pixels.
void output_tile(const float* from, int64_t stride, int64_t channels, float* const pixels[16]);
// A g A^T: gradients of 16 output pixels to 36 positions.
void output_gradient_tile(const float* const pixels[16], int64_t channels, float* to, int64_t stride);
// G w G^T of one output channel's nine taps [3, 3, channels], turned by half a circle when `rotated`.
void weight_taps(const float* taps, bool rotated, int64_t channels, float* to, int64_t stride);
// G^T u G: 36 positions to the nine taps.
void weight_gradient_taps(const float* from, int64_t stride, int64_t channels, float* taps);

}  // namespace redline::models::lift_splat::winograd
