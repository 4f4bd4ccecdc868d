#include "models/convnext/depthwise.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "models/layers/layer_test_tools.h"

namespace redline::models::convnext {
namespace {

using models::testing::expect_same_layer;
using models::testing::wave;

torch::Tensor depthwise_by_libtorch(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  return torch::conv2d(x.permute({0, 3, 1, 2}), weight, bias, 1, 3, 1, x.size(3)).permute({0, 2, 3, 1});
}

class NarrowVectors {
 public:
  explicit NarrowVectors(bool on) { use_narrow_depthwise(on); }
  ~NarrowVectors() { use_narrow_depthwise(false); }
};

// Channels with and without a rest, every rest of a register tile, maps narrower and lower than the window, many
// pictures.
TEST(Depthwise, EqualsLibTorchInValueAndGradients) {
  for (const bool narrow : {false, true}) {
    const NarrowVectors vectors(narrow);
    for (const auto& [images, height, width, channels] : {std::array<int64_t, 4>{2, 16, 16, 32},
                                                          {3, 1, 1, 16},
                                                          {2, 2, 2, 40},
                                                          {1, 3, 5, 7},
                                                          {2, 9, 11, 24},
                                                          {1, 20, 14, 1},
                                                          {70, 4, 4, 48},
                                                          {1, 13, 33, 17},
                                                          {2, 7, 7, 8},
                                                          {1, 1, 40, 3},
                                                          {1, 40, 1, 19}}) {
      SCOPED_TRACE(std::to_string(images) + "x" + std::to_string(height) + "x" + std::to_string(width) + "x" +
                   std::to_string(channels) + (narrow ? " narrow" : ""));
      expect_same_layer([](const auto& x) { return std::vector{depthwise7(x[0], x[1], x[2])}; },
                        [](const auto& x) { return std::vector{depthwise_by_libtorch(x[0], x[1], x[2])}; },
                        {wave({images, height, width, channels}, 0.3, torch::kFloat32),
                         wave({channels, 1, 7, 7}, 0.7, torch::kFloat32), wave({channels}, 0.1, torch::kFloat32)},
                        2e-5);
    }
  }
}

TEST(Depthwise, TheSameBitsForAnyNumberOfThreads) {
  const MapShape shape{9, 12, 10, 40};
  const torch::Tensor x = wave({9, 12, 10, 40}, 0.2, torch::kFloat32), g = wave({9, 12, 10, 40}, 1.2, torch::kFloat32);
  const torch::Tensor taps = wave({kTaps, 40}, 0.5, torch::kFloat32);
  const auto run = [&](int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    torch::Tensor out = torch::empty_like(x), weight = torch::empty({kTaps, 40}), bias = torch::empty({40});
    depthwise_sum(shape, x.const_data_ptr<float>(), taps.const_data_ptr<float>(), nullptr, g.const_data_ptr<float>(),
                  out.mutable_data_ptr<float>());
    depthwise_weight_grad(shape, x.const_data_ptr<float>(), g.const_data_ptr<float>(), weight.mutable_data_ptr<float>(),
                          bias.mutable_data_ptr<float>());
    at::set_num_threads(before);
    return std::vector{out, weight, bias};
  };
  const auto one = run(1);
  for (int threads : {2, 3, 7}) {
    const auto several = run(threads);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(torch::equal(one[i], several[i])) << threads << ", " << i;
  }
}

// A control: the comparison above would see a single wrong tap.
TEST(Depthwise, AnotherTapGivesAnotherResult) {
  const torch::Tensor x = wave({1, 8, 8, 16}, 0.3, torch::kFloat32), bias = torch::zeros({16});
  torch::Tensor weight = wave({16, 1, 7, 7}, 0.7, torch::kFloat32);
  const torch::Tensor before = depthwise7(x, weight, bias);
  weight[3][0][6][0] += 0.1;
  const torch::Tensor after = depthwise7(x, weight, bias);
  const torch::Tensor changed = (before - after).abs().amax({0, 1, 2}).gt(0.0);
  EXPECT_EQ(changed.sum().item<int64_t>(), 1);
  EXPECT_TRUE(changed[3].item<bool>());
}

}  // namespace
}  // namespace redline::models::convnext
