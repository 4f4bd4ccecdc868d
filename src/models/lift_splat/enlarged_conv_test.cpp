#include "models/lift_splat/enlarged_conv.h"

#include <gtest/gtest.h>

#include "models/layers/layer_test_tools.h"
#include "models/lift_splat/conv_norm.h"

namespace redline::models::lift_splat {
namespace {

using models::testing::expect_same_layer;
using models::testing::wave;

torch::Tensor in_two_steps(const torch::Tensor& x, const torch::Tensor& weight, int64_t factor) {
  return at::conv2d(enlarge(x, factor), weight, {}, 1, 1);
}

TEST(EnlargedConv, EqualsEnlargingThenConvolving) {
  struct Case {
    int64_t pictures, in, height, width, out, factor;
  };
  // Odd sizes, one row or column alone, channels beside whole vectors, more rows than one tile holds, no enlargement.
  for (const Case& c :
       {Case{2, 5, 4, 6, 7, 2}, Case{1, 3, 1, 5, 33, 2}, Case{3, 8, 5, 1, 64, 4}, Case{1, 1, 1, 1, 1, 4},
        Case{2, 4, 3, 150, 40, 2}, Case{1, 6, 37, 9, 32, 4}, Case{2, 3, 5, 4, 6, 1}}) {
    const torch::Tensor x = wave({c.pictures, c.in, c.height, c.width}, 0.1, torch::kFloat32),
                        weight = wave({c.out, c.in, 3, 3}, 0.6, torch::kFloat32);
    SCOPED_TRACE(::testing::Message() << c.height << "x" << c.width << " by " << c.factor);
    expect_same_layer([&](const auto& in) { return std::vector{fused::enlarged_conv(in[0], in[1], c.factor, {})}; },
                      [&](const auto& in) { return std::vector{in_two_steps(in[0], in[1], c.factor)}; }, {x, weight},
                      3e-6);
    const torch::Tensor base = wave({c.pictures, c.out, c.height * c.factor, c.width * c.factor}, 0.9, torch::kFloat32);
    expect_same_layer([&](const auto& in) { return std::vector{fused::enlarged_conv(in[0], in[1], c.factor, in[2])}; },
                      [&](const auto& in) { return std::vector{in_two_steps(in[0], in[1], c.factor) + in[2]}; },
                      {x, weight, base}, 3e-6);
  }
}

TEST(EnlargedConv, APartOfAWeightGetsItsPartOfTheGradient) {
  const torch::Tensor x = wave({2, 4, 3, 5}, 0.1, torch::kFloat32), skip = wave({2, 3, 6, 10}, 0.4, torch::kFloat32),
                      weight = wave({6, 7, 3, 3}, 0.6, torch::kFloat32);
  expect_same_layer(
      [](const auto& in) {
        const auto parts = in[2].split_with_sizes({3, 4}, 1);
        return std::vector{fused::enlarged_conv(in[0], parts[1], 2, at::conv2d(in[1], parts[0], {}, 1, 1))};
      },
      [](const auto& in) {
        return std::vector{at::conv2d(torch::cat({in[1], enlarge(in[0], 2)}, 1), in[2], {}, 1, 1)};
      },
      {x, skip, weight}, 3e-6);
}

TEST(EnlargedConv, TheSameForAnyNumberOfThreads) {
  const torch::Tensor x = wave({2, 8, 7, 90}, 0.1, torch::kFloat32), weight = wave({16, 8, 3, 3}, 0.6, torch::kFloat32);
  const int threads = at::get_num_threads();
  const torch::Tensor two = fused::enlarged_conv(x, weight, 2, {});
  at::set_num_threads(1);
  const torch::Tensor one = fused::enlarged_conv(x, weight, 2, {});
  at::set_num_threads(threads);
  EXPECT_LE(models::testing::largest_difference(one, two), 1e-6);  // products of another height may round otherwise
}

TEST(EnlargedAxis, TransposesItself) {
  const EnlargedAxis axis(3, 2);
  EXPECT_EQ(axis.large, 6);
  // Place 0 of the large map: the kernel's first tap lies outside, its second is on the first place.
  ASSERT_EQ(axis.sources[0].size(), 3u);
  EXPECT_EQ(axis.sources[0][0].shift, 1);
  EXPECT_EQ(axis.sources[0][0].at, 0);
  EXPECT_FLOAT_EQ(axis.sources[0][0].weight, 1.0f);
  EXPECT_FLOAT_EQ(axis.sources[0][1].weight, 0.6f);  // 2/5 of the way to the second
  EXPECT_FLOAT_EQ(axis.sources[0][2].weight, 0.4f);
  double forth = 0.0, back = 0.0;
  for (const auto& list : axis.sources)
    for (const auto& tap : list) forth += static_cast<double>(tap.weight);
  for (const auto& list : axis.targets)
    for (const auto& tap : list) back += static_cast<double>(tap.weight);
  EXPECT_DOUBLE_EQ(forth, back);
}

}  // namespace
}  // namespace redline::models::lift_splat
