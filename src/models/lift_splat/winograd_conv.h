// 3x3 convolutions of stride 1 by Winograd's minimal filtering, F(4x4, 3x3) of Lavin & Gray 2016: tiles of 6x6 inputs
// become 36 products of matrices [tiles, channels], a quarter of the multiplications of the direct sum. Forward, input
// and weight gradients alike. Rounding grows by about a digit (the tests say by how much); bfloat16 has none to spare,
// so the products here are float32 under bf16-mixed too: a quarter of them beats a direct sum at twice the rate, which
// is what AVX512-BF16 gives. Tile units (AMX) give more, so there the direct sum in bfloat16 stays.
#pragma once

#include <torch/torch.h>

namespace redline::models::lift_splat::fused {

// x [M, C, H, W], weight [O, C, 3, 3]: CPU floats, both channel counts multiples of 16, and enough tiles
// that transforming the weights is worth it.
bool winograd_fits(const torch::Tensor& x_MCHW, const torch::Tensor& weight);
// With a margin of one zero and without a bias; the result is channels last.
torch::Tensor winograd_conv(const torch::Tensor& x_MCHW, const torch::Tensor& weight);

}  // namespace redline::models::lift_splat::fused
