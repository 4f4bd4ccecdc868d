// The fused layers against the operators: value and every gradient, at sizes with rests, with and without layer scale,
// stochastic depth and whole patches.
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "device/memory.h"
#include "models/convnext/gelu.h"
#include "models/convnext/gelu_bf16.h"
#include "models/convnext/model.h"
#include "models/convnext/row_kernels.h"
#include "models/layers/layer_test_tools.h"
#include "models/layers/panel_gemm.h"
#include "models/layers/panel_gemm_bf16.h"

namespace redline::models::convnext {
namespace {

using models::testing::largest_difference;
using models::testing::wave;

std::vector<int64_t> ids_of(int64_t count) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(10 + 3 * i);
  return ids;
}

// The output, the gradient at the input and at every parameter.
template <class Layer, class Forward>
std::vector<torch::Tensor> run_layer(Layer& layer, const torch::Tensor& x_in, const Forward& forward) {
  torch::Tensor x = x_in.detach().clone().requires_grad_(x_in.requires_grad());
  for (torch::Tensor& parameter : layer->parameters()) parameter.mutable_grad().reset();
  std::vector<torch::Tensor> out{forward(x)};
  (out[0] * wave(out[0].sizes().vec(), 0.4, torch::kFloat32)).sum().backward();
  if (x.requires_grad()) out.push_back(x.grad());
  for (const auto& item : layer->named_parameters()) out.push_back(item.value().grad().clone());
  return out;
}

void expect_near(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].sizes(), b[i].sizes()) << i;
    EXPECT_LE(largest_difference(a[i], b[i]), tolerance) << "result " << i;
  }
}

template <class Layer>
void fill(Layer& layer) {
  const torch::NoGradGuard no_grad;
  double phase = 0.0;
  for (torch::Tensor& parameter : layer->parameters())
    parameter.copy_(0.3 * wave(parameter.sizes().vec(), phase += 0.7, torch::kFloat32));
}

Block make_block(int64_t dim, double scale, double drop_path) {
  Options options;
  options.layer_scale_init = scale;
  Block b(dim, options, drop_path, "test");
  fill(b);
  return b;
}

TEST(ConvNeXtBlock, FusedEqualsOperators) {
  for (const auto& [images, height, width, dim] : {std::array<int64_t, 4>{3, 8, 8, 32},
                                                   {1, 1, 1, 8},
                                                   {2, 5, 3, 24},
                                                   {5, 2, 2, 64},
                                                   {1, 21, 17, 12},
                                                   {4, 30, 19, 16}})
    for (const double scale : {0.0, 0.5})
      for (const double drop : {0.0, 0.4}) {
        SCOPED_TRACE(::testing::Message()
                     << images << "x" << height << "x" << width << "x" << dim << " " << scale << " " << drop);
        Block b = make_block(dim, scale, drop);
        const auto ids = ids_of(images);
        const torch::Tensor x = wave({images, height, width, dim}, 0.1, torch::kFloat32).requires_grad_(true);
        const auto with = [&](bool fused) {
          task::Context ctx(5, 2, true, ids);
          return run_layer(b, x, [&](const torch::Tensor& in) { return block(b, in, {&ctx, fused}); });
        };
        expect_near(with(true), with(false), 3e-5);
        panels::use_narrow(true);
        expect_near(with(true), with(false), 3e-5);
        panels::use_narrow(false);
      }
}

// More rows than a chunk of backward, and a width at which tiles are low.
TEST(ConvNeXtBlock, ManyRowsAndWideRows) {
  for (const auto& [images, side, dim] : {std::array<int64_t, 3>{3, 37, 40}, {2, 3, 544}}) {
    SCOPED_TRACE(dim);
    Block b = make_block(dim, 0.5, 0.3);
    {
      const torch::NoGradGuard no_grad;  // sums over many columns stay of the size of the others
      b->mlp->fc1->weight.mul_(0.2);
      b->mlp->fc2->weight.mul_(0.2);
    }
    const auto ids = ids_of(images);
    const torch::Tensor x = wave({images, side, side, dim}, 0.1, torch::kFloat32).requires_grad_(true);
    const auto with = [&](bool fused) {
      task::Context ctx(5, 2, true, ids);
      return run_layer(b, x, [&](const torch::Tensor& in) { return block(b, in, {&ctx, fused}); });
    };
    const auto fast = with(true), plain = with(false);
    ASSERT_EQ(fast.size(), plain.size());
    for (size_t i = 0; i < fast.size(); ++i)
      EXPECT_LE(largest_difference(fast[i], plain[i]), 2e-5 * (1.0 + plain[i].abs().max().item<double>())) << i;
  }
}

TEST(ConvNeXtBlock, EvaluationDropsNothingAndKeepsNothing) {
  Block b = make_block(16, 0.5, 0.9);
  const auto ids = ids_of(6);
  const torch::Tensor x = wave({6, 4, 4, 16}, 0.1, torch::kFloat32);
  const torch::NoGradGuard no_grad;
  task::Context training(5, 2, true, ids), evaluation(5, 2, false, ids);
  const torch::Tensor whole = block(b, x, {&evaluation, true});
  EXPECT_LE(largest_difference(whole, block(b, x, {&evaluation, false})), 1e-5);
  // A dropped picture passes unchanged; a control: with 0.9 some are.
  const torch::Tensor dropped = block(b, x, {&training, true});
  const torch::Tensor same = (dropped - x).abs().amax({1, 2, 3}).eq(0.0);
  EXPECT_GT(same.sum().item<int64_t>(), 0);
  EXPECT_EQ((whole - x).abs().amax({1, 2, 3}).eq(0.0).sum().item<int64_t>(), 0);
}

TEST(ConvNeXtBlock, SplitBatchesDrawTheSameDepth) {
  Block b = make_block(16, 0.5, 0.5);
  const auto ids = ids_of(8);
  const torch::Tensor x = wave({8, 4, 4, 16}, 0.1, torch::kFloat32);
  const torch::NoGradGuard no_grad;
  task::Context whole(5, 2, true, ids);
  const torch::Tensor out = block(b, x, {&whole, true});
  for (int64_t i = 0; i < 8; i += 2) {
    const std::vector<int64_t> part(ids.begin() + i, ids.begin() + i + 2);
    task::Context ctx(5, 2, true, part);
    EXPECT_LE(largest_difference(block(b, x.narrow(0, i, 2), {&ctx, true}), out.narrow(0, i, 2)), 1e-6);
  }
}

TEST(ConvNeXtBlock, TheSameBitsTwice) {
  Block b = make_block(32, 0.5, 0.2);
  const auto ids = ids_of(7);
  const torch::Tensor x = wave({7, 9, 6, 32}, 0.1, torch::kFloat32).requires_grad_(true);
  const auto once = [&] {
    task::Context ctx(5, 2, true, ids);
    return run_layer(b, x, [&](const torch::Tensor& in) { return block(b, in, {&ctx, true}); });
  };
  const auto first = once(), second = once();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(torch::equal(first[i], second[i])) << i;
}

TEST(ConvNeXtBlock, HalfPrecisionProductsStayNear) {
  Block b = make_block(64, 0.5, 0.0);
  const auto ids = ids_of(3);
  const torch::Tensor x = wave({3, 6, 6, 64}, 0.1, torch::kFloat32).requires_grad_(true);
  const auto run = [&] {
    task::Context ctx(5, 2, true, ids);
    return run_layer(b, x, [&](const torch::Tensor& in) { return block(b, in, {&ctx, true}); });
  };
  const auto full = run();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
  const auto low = run();
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  expect_near(low, full, 0.15);
  EXPECT_GT(largest_difference(low[0], full[0]), 1e-5) << "the products did not run in bfloat16";
}

// Where the processor has the units, and the plain way of the same products: odd numbers of rows, more rows than a
// chunk of backward, a width with half a panel, low tiles.
TEST(ConvNeXtBlock, RoundedRowsStayNear) {
  for (const auto way : {bf16_panels::Way::kAsTheMachine, bf16_panels::Way::kPlain})
    for (const auto& [images, height, width, dim] :
         {std::array<int64_t, 4>{1, 1, 1, 8}, {1, 21, 17, 12}, {3, 37, 37, 40}, {2, 3, 3, 544}})
      for (const double scale : {0.0, 0.5}) {
        SCOPED_TRACE(::testing::Message() << images << "x" << height << "x" << width << "x" << dim << " " << scale);
        Block b = make_block(dim, scale, 0.3);
        {
          const torch::NoGradGuard no_grad;  // sums over many columns stay of the size of the others
          b->mlp->fc1->weight.mul_(0.2);
          b->mlp->fc2->weight.mul_(0.2);
        }
        const auto ids = ids_of(images);
        const torch::Tensor x = wave({images, height, width, dim}, 0.1, torch::kFloat32).requires_grad_(true);
        const auto run = [&](bool low) {
          task::Context ctx(5, 2, true, ids);
          at::autocast::set_autocast_enabled(at::kCPU, low);
          at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
          const auto out = run_layer(b, x, [&](const torch::Tensor& in) { return block(b, in, {&ctx, true}); });
          at::autocast::clear_cache();
          at::autocast::set_autocast_enabled(at::kCPU, false);
          return out;
        };
        const auto full = run(false);
        bf16_panels::use(way);
        const auto low = run(true);
        bf16_panels::use(bf16_panels::Way::kAsTheMachine);
        expect_near(low, full, 3e-2);
      }
}

// Of two blocks in a row, what the graph holds: rounded half as much, the second block's input included.
TEST(ConvNeXtBlock, KeepsHalfWhereProductsAreRounded) {
  device::memory::install();
  bf16_panels::use(bf16_panels::Way::kPlain);
  Block first = make_block(32, 0.5, 0.0), second = make_block(32, 0.5, 0.0);
  const auto ids = ids_of(2);
  const torch::Tensor x = wave({2, 16, 16, 32}, 0.1, torch::kFloat32).requires_grad_(true);
  const auto kept = [&](bool low) {
    task::Context ctx(5, 2, true, ids);
    at::autocast::set_autocast_enabled(at::kCPU, low);
    at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
    const int64_t before = device::memory::stats().live_bytes;
    const torch::Tensor sum = block(second, block(first, x, {&ctx, true}), {&ctx, true}).sum();
    const int64_t held = device::memory::stats().live_bytes - before;
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return static_cast<double>(held);
  };
  const double full = kept(false), low = kept(true);
  bf16_panels::use(bf16_panels::Way::kAsTheMachine);
  EXPECT_GT(full, 2.0 * 512 * 32 * 4 * 5);  // the control: it was counted
  EXPECT_LT(low, 0.6 * full);
}

// Norm before and after, pictures whose last rows and columns belong to no patch.
TEST(PatchLayer, RoundedRowsStayNear) {
  for (const auto way : {bf16_panels::Way::kAsTheMachine, bf16_panels::Way::kPlain})
    for (const bool norm_first : {false, true})
      for (const auto& [images, height, width, in, dim] :
           {std::array<int64_t, 5>{3, 9, 14, 12, 20}, {2, 7, 5, 24, 40}, {2, 32, 32, 32, 48}}) {
        SCOPED_TRACE(::testing::Message()
                     << norm_first << ": " << images << "x" << height << "x" << width << "x" << in);
        PatchLayer layer(in, dim, 2, norm_first);
        fill(layer);
        // A mean far above what lies around it must not cost digits.
        const torch::Tensor x = (wave({images, height, width, in}, 0.1, torch::kFloat32) + (norm_first ? 100.0 : 0.0))
                                    .requires_grad_(norm_first);
        const auto run = [&](bool low) {
          at::autocast::set_autocast_enabled(at::kCPU, low);
          at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
          const auto out = run_layer(layer, x, [&](const torch::Tensor& v) { return fused::patch_layer(layer, v); });
          at::autocast::set_autocast_enabled(at::kCPU, false);
          return out;
        };
        const auto full = run(false);
        bf16_panels::use(way);
        const auto low = run(true);
        bf16_panels::use(bf16_panels::Way::kAsTheMachine);
        expect_near(low, full, 0.15);  // a norm's bias sums rows whose products nearly cancel
        EXPECT_GT(largest_difference(low[0], full[0]), 1e-5) << "the products did not run in bfloat16";
      }
}

TEST(PatchLayer, FusedEqualsOperators) {
  for (const bool norm_first : {false, true})
    for (const int64_t side : {2, 4})
      for (const auto& [images, height, width, in, dim] : {std::array<int64_t, 5>{2, 16, 16, 3, 16},
                                                           {1, 4, 4, 1, 8},
                                                           {3, 9, 14, 12, 20},
                                                           {2, 7, 5, 24, 40},
                                                           {1, 64, 48, 3, 96}}) {
        SCOPED_TRACE(::testing::Message()
                     << norm_first << " " << side << ": " << images << "x" << height << "x" << width << "x" << in);
        if (norm_first && in == 1) continue;  // one channel, normalised, is nothing but rounding
        PatchLayer layer(in, dim, side, norm_first);
        fill(layer);
        const torch::Tensor x = wave({images, height, width, in}, 0.1, torch::kFloat32).requires_grad_(norm_first);
        expect_near(run_layer(layer, x, [&](const torch::Tensor& v) { return fused::patch_layer(layer, v); }),
                    run_layer(layer, x, [&](const torch::Tensor& v) { return plain::patch_layer(layer, v); }), 3e-5);
      }
}

TEST(ConvNeXtGelu, ValueAndSlopeAreNearTheExactOnes) {
  double value_error = 0.0, slope_error = 0.0;
  for (double x = -12.0; x <= 12.0; x += 1.0 / 1024.0) {
    const double cdf = 0.5 * std::erfc(-x * M_SQRT1_2), density = std::exp(-0.5 * x * x) / std::sqrt(2.0 * M_PI);
    float h = static_cast<float>(x), zero = 0.0f, value = 0.0f, slope = 1.0f, again = 0.0f, sum = 0.0f;
    rows::bias_gelu(&h, &zero, 1, 1, &value);
    rows::gelu_backward(&slope, &h, 1, 1, &again, &sum);
    EXPECT_EQ(value, again);
    EXPECT_EQ(slope, sum);
    value_error = std::max(value_error, std::abs(value - x * cdf) / std::max(1.0, std::abs(x)));
    slope_error = std::max(slope_error, std::abs(slope - (cdf + x * density)));
  }
  EXPECT_LE(value_error, 1e-6);
  EXPECT_LE(slope_error, 1e-6);
  EXPECT_GT(value_error, 0.0);
}

TEST(ConvNeXtGelu, TheShortOnesAreNearToo) {
  double value_error = 0.0, slope_error = 0.0;
  for (double x = -12.0; x <= 12.0; x += 1.0 / 1024.0) {
    const double cdf = 0.5 * std::erfc(-x * M_SQRT1_2), density = std::exp(-0.5 * x * x) / std::sqrt(2.0 * M_PI);
    const ShortGeluPoint<float> p(static_cast<float>(x));
    float value = 0.0f, slope = 0.0f;
    gelu_value(p, value);
    gelu_slope(p, slope);
    value_error = std::max(value_error, std::abs(value - x * cdf) / std::max(1.0, std::abs(x)));
    slope_error = std::max(slope_error, std::abs(slope - (cdf + x * density)));
  }
  EXPECT_LE(value_error, 2e-5);
  EXPECT_LE(slope_error, 6e-5);
  EXPECT_GT(value_error, 1e-6);
}

TEST(ConvNeXtGelu, NotANumberStaysOne) {
  float h = NAN, zero = 0.0f, value = 0.0f;
  rows::bias_gelu(&h, &zero, 1, 1, &value);
  EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace redline::models::convnext
