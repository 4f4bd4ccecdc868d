#include "models/lift_splat/winograd_conv.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "models/layers/layer_test_tools.h"

namespace redline::models::lift_splat {
namespace {

using models::testing::wave;

// Errors of the output and both gradients against double precision, in units of float's rounding of the sum of the
// absolute products: what a sum's error is bounded by, whether or not it cancels.
struct ConvErrors {
  double output, input_gradient, weight_gradient;
};
ConvErrors conv_errors(const torch::Tensor& x, const torch::Tensor& weight, bool winograd, double wrong_tap = 0.0) {
  const auto run = [&](const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& g, bool tiles) {
    torch::Tensor leaf = a.clone().requires_grad_(true), kernel = b.clone().requires_grad_(true);
    const torch::Tensor y = tiles ? fused::winograd_conv(leaf, kernel) : at::conv2d(leaf, kernel, {}, 1, 1);
    (y * g).sum().backward();
    return std::vector<torch::Tensor>{y.detach(), leaf.grad(), kernel.grad()};
  };
  const torch::Tensor g = wave({x.size(0), weight.size(0), x.size(2), x.size(3)}, 0.3, torch::kFloat32);
  const auto wide = [](const torch::Tensor& t) { return t.to(torch::kFloat64); };
  torch::Tensor given = weight.clone();
  given[0][0][1][1] += wrong_tap;
  const auto got = run(x, given, g, winograd), exact = run(wide(x), wide(weight), wide(g), false),
             sizes = run(wide(x).abs(), wide(weight).abs(), wide(g).abs(), false);
  double errors[3];
  for (size_t i = 0; i < 3; ++i)
    errors[i] = (wide(got[i]) - exact[i]).abs().max().item<double>() / sizes[i].max().item<double>() / 0x1p-24;
  return {errors[0], errors[1], errors[2]};
}

// The tiles' transforms have rows whose absolute values sum up to 10 (inputs) and 19 (outputs) along each side before
// they cancel, so outputs and gradients of inputs are less exact than a direct sum: 4 to 29 units with 16 to 512
// channels, where LibTorch's convolution has 0.1 to 4. Gradients of weights are long sums of both kinds: 33 to 51 units
// by tiles, 41 to 62 directly. Twice the largest by tiles is allowed. As a share of the largest result, which nearly
// cancels for waves, that was up to 2e-4 at 512 channels.
constexpr double kMostUnits = 100.0;

TEST(WinogradConv, IsAsExactAsItsTilesAllowForwardAndBackward) {
  struct Case {
    int64_t pictures, in, height, width, out;
  };
  // Whole tiles, partial tiles on one and on both sides, one tile alone, more tiles than one block holds.
  for (const Case& c : {Case{2, 16, 8, 12, 32}, Case{1, 32, 5, 9, 16}, Case{3, 16, 4, 4, 16}, Case{1, 48, 7, 6, 64},
                        Case{2, 16, 42, 38, 16}, Case{2, 512, 42, 38, 512}}) {
    SCOPED_TRACE(::testing::Message() << c.in << " to " << c.out << ", " << c.height << "x" << c.width);
    const torch::Tensor x = wave({c.pictures, c.in, c.height, c.width}, 0.1, torch::kFloat32),
                        weight = wave({c.out, c.in, 3, 3}, 0.6, torch::kFloat32);
    const ConvErrors tiles = conv_errors(x, weight, true);
    EXPECT_LE(tiles.output, kMostUnits);
    EXPECT_LE(tiles.input_gradient, kMostUnits);
    EXPECT_LE(tiles.weight_gradient, kMostUnits);
    RecordProperty("units", static_cast<int>(std::max(tiles.output, tiles.input_gradient)));
    // One of the weights off by a twentieth of their range is seen in the output.
    EXPECT_GT(conv_errors(x, weight, true, 0.1).output, 2 * kMostUnits);
  }
}

TEST(WinogradConv, ASinglePixelGivesTheKernelTurned) {
  torch::Tensor x = torch::zeros({1, 16, 6, 6});
  x[0][3][2][4] = 1.0f;
  const torch::Tensor weight = wave({16, 16, 3, 3}, 0.2, torch::kFloat32);
  const torch::Tensor y = fused::winograd_conv(x, weight);
  for (int64_t dy = 0; dy < 3; ++dy)
    for (int64_t dx = 0; dx < 3; ++dx)
      EXPECT_NEAR(y[0][5][1 + dy][3 + dx].item<float>(), weight[5][3][2 - dy][2 - dx].item<float>(), 1e-5);
  EXPECT_NEAR(y[0][5][4][0].item<float>(), 0.0f, 1e-5);
}

TEST(WinogradConv, RefusesWhatItsTilesDoNotHold) {
  const torch::Tensor x = torch::zeros({1, 16, 32, 29}), weight = torch::zeros({16, 16, 3, 3});
  EXPECT_TRUE(fused::winograd_fits(x, weight));
  EXPECT_FALSE(fused::winograd_fits(torch::zeros({1, 16, 32, 28}), weight));
  EXPECT_FALSE(fused::winograd_fits(x.to(torch::kBFloat16), weight));
  EXPECT_FALSE(fused::winograd_fits(x, torch::zeros({16, 16, 1, 1})));
  EXPECT_FALSE(fused::winograd_fits(torch::zeros({1, 24, 32, 32}), torch::zeros({16, 24, 3, 3})));
}

TEST(WinogradConv, TheSameBitsForAnyNumberOfThreads) {
  const torch::Tensor x = wave({2, 32, 21, 18}, 0.1, torch::kFloat32),
                      weight = wave({48, 32, 3, 3}, 0.6, torch::kFloat32);
  const auto run = [&](int threads) {
    at::set_num_threads(threads);
    torch::Tensor leaf = x.clone().requires_grad_(true), kernel = weight.clone().requires_grad_(true);
    const torch::Tensor y = fused::winograd_conv(leaf, kernel);
    (y * wave(y.sizes().vec(), 0.3, torch::kFloat32)).sum().backward();
    return std::vector<torch::Tensor>{y.detach(), leaf.grad(), kernel.grad()};
  };
  const int before = at::get_num_threads();
  const auto one = run(1), two = run(2);
  at::set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(torch::equal(one[i], two[i])) << i;
}

}  // namespace
}  // namespace redline::models::lift_splat
