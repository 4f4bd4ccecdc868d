#include "models/lift_splat/swin.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "models/layers/layer_test_tools.h"
#include "models/layers/panel_gemm_bf16.h"
#include "models/lift_splat/conv_norm.h"
#include "models/lift_splat/norm_relu_fused.h"
#include "models/lift_splat/overlap.h"
#include "models/lift_splat/swin_fused.h"

namespace redline::models::lift_splat {
namespace {

using models::testing::largest_difference;
using models::testing::wave;

// Value and all gradients of a module's forward, fused and plain.
template <class Forward>
void expect_same_paths(torch::nn::Module& module, const torch::Tensor& x, const Forward& forward, double tolerance) {
  const auto run = [&](bool fused) {
    module.zero_grad();
    torch::Tensor leaf = x.clone().requires_grad_(true);
    const torch::Tensor out = forward(leaf, fused);
    (out * wave(out.sizes().vec(), 0.3, torch::kFloat32)).sum().backward();
    std::vector<std::pair<std::string, torch::Tensor>> results{{"output", out.detach()}, {"input", leaf.grad()}};
    for (const auto& item : module.named_parameters()) results.emplace_back(item.key(), item.value().grad().clone());
    return results;
  };
  const auto fused = run(true), plain = run(false);
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_LE(largest_difference(fused[i].second, plain[i].second), tolerance) << plain[i].first;
}

void fill_with_waves(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  double phase = 0.0;
  for (auto& item : module.named_parameters())
    item.value().add_(wave(item.value().sizes().vec(), phase += 0.7, torch::kFloat32) * 0.1);
}

TEST(Swin, FusedBlocksEqualPlainOnesWithPaddingAndShift) {
  BackboneOptions options;
  options.embed_dim = 16;
  options.num_heads = {2, 2, 2, 2};
  options.window_size = 4;
  const std::vector<int64_t> ids{7, 8};
  for (const int64_t index : {0, 1})
    for (const auto& [h, w] : {std::pair{8, 8}, std::pair{5, 9}, std::pair{3, 2}}) {
      SwinBlock block(options, 0, index, 0.0, "block", 3);
      fill_with_waves(*block);
      const WindowMap map(h, w, 4);
      task::Context ctx(1, 0, true, ids);
      expect_same_paths(
          *block, wave({4, h, w, 16}, 0.0, torch::kFloat32),
          [&](const torch::Tensor& x, bool fused) { return block->forward(x, map, ctx, fused); }, 2e-5);
    }
}

TEST(Swin, StochasticDepthLeavesOutTheSamePictures) {
  BackboneOptions options;
  options.embed_dim = 8;
  options.num_heads = {1, 1, 1, 1};
  options.window_size = 2;
  const std::vector<int64_t> ids{1, 2, 3, 4};
  SwinBlock block(options, 0, 1, 0.5, "block", 3);
  fill_with_waves(*block);
  const WindowMap map(3, 3, 2);
  task::Context ctx(5, 9, true, ids);
  const torch::Tensor x = wave({8, 3, 3, 8}, 0.0, torch::kFloat32);  // two cameras a sample
  const fused::Kept kept = fused::kept(ctx, 0.5, "block.drop_path1", x);
  EXPECT_GT(kept.alive.size(), 0u);
  EXPECT_LT(kept.alive.size(), 8u);
  expect_same_paths(
      *block, x, [&](const torch::Tensor& in, bool fused) { return block->forward(in, map, ctx, fused); }, 2e-5);
}

TEST(Swin, MergingPadsOddMapsAndKeepsTheOrderOfNeighbours) {
  PatchMerging merging(8, "merge", 1);
  fill_with_waves(*merging);
  for (const auto& [h, w] : {std::pair{4, 6}, std::pair{5, 3}, std::pair{1, 1}})
    expect_same_paths(
        *merging, wave({2, h, w, 8}, 0.0, torch::kFloat32),
        [&](const torch::Tensor& x, bool fused) { return merging->forward(x, fused); }, 2e-5);
  // (even, even), (odd row), (odd column), (odd, odd).
  PatchMerging one(1, "one", 1);
  torch::NoGradGuard no_grad;
  one->norm->weight.fill_(1.0);
  one->reduction->weight.copy_(torch::tensor({1.0f, 0.0f, 0.0f, 0.0f, 0.0f, 1.0f, 0.0f, 0.0f}).view({2, 4}));
  const torch::Tensor x = torch::tensor({1.0f, 2.0f, 4.0f, 8.0f}).view({1, 2, 2, 1});
  const torch::Tensor normed = at::layer_norm(torch::tensor({1.0f, 4.0f, 2.0f, 8.0f}), {4});
  EXPECT_NEAR(one->forward(x, false).view({-1})[1].item<float>(), normed[1].item<float>(), 1e-5);
}

TEST(Windows, SourcesAndRegions) {
  const WindowMap map(3, 3, 2);
  EXPECT_EQ(map.windows(), 4);
  EXPECT_EQ(map.sources(0), (std::vector<int32_t>{0, 1, 3, 4, 2, -1, 5, -1, 6, 7, -1, -1, 8, -1, -1, -1}));
  EXPECT_EQ(map.sources(1), (std::vector<int32_t>{4, 5, 7, 8, -1, 3, -1, 6, -1, -1, 1, 2, -1, -1, -1, 0}));
  EXPECT_TRUE(map.regions(0).empty());
  EXPECT_EQ(map.mask(1)[0].abs().max().item<float>(), 0.0f);
  EXPECT_EQ(map.mask(1)[3].min().item<float>(), -100.0f);
  const torch::Tensor index = relative_index(7);
  EXPECT_EQ(index[0][0].item<int64_t>(), 6 * 13 + 6);
  EXPECT_EQ(index[48][0].item<int64_t>(), 168);
}

TEST(NormRelu, EqualsSeparateOperators) {
  const std::vector<int64_t> ids{1, 2};
  for (const bool training : {true, false}) {
    BatchNorm norm = fresh_norm(6);
    {
      torch::NoGradGuard no_grad;
      norm->running_mean.copy_(wave({6}, 0.1, torch::kFloat32) * 0.2);
      norm->running_var.add_(wave({6}, 0.4, torch::kFloat32).abs());
    }
    fill_with_waves(*norm);
    for (const bool with_residual : {true, false}) {
      const torch::Tensor residual =
          wave({2, 6, 5, 3}, 2.0, torch::kFloat32).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_(true);
      const torch::Tensor x = wave({2, 6, 5, 3}, 0.0, torch::kFloat32).contiguous(at::MemoryFormat::ChannelsLast);
      std::vector<torch::Tensor> statistics, residual_gradients;
      expect_same_paths(
          *norm, x,
          [&](const torch::Tensor& in, bool fused) {
            task::Context ctx(1, 0, training, ids);
            if (residual.grad().defined())
              residual_gradients.push_back(residual.grad().clone()), residual.mutable_grad().reset();
            const torch::Tensor out =
                norm_relu(norm, in, with_residual ? residual : torch::Tensor(), Pass{&ctx, fused});
            for (const auto& update : ctx.batch_norm_updates()) {
              statistics.push_back(update.batch_mean);
              statistics.push_back(update.batch_var_unbiased);
            }
            return out;
          },
          1e-5);
      ASSERT_EQ(statistics.size(), training ? 4u : 0u);
      for (size_t i = 0; i < statistics.size() / 2; ++i)
        EXPECT_LE(largest_difference(statistics[i], statistics[i + 2]), 1e-6);
      if (with_residual) {
        ASSERT_EQ(residual_gradients.size(), 1u);
        EXPECT_LE(largest_difference(residual_gradients[0], residual.grad()), 1e-6);
      }
    }
  }
}

// What backward keeps of it is rounded under bf16-mixed: gradients stay near, the output is the same.
TEST(NormRelu, RoundedRowsStayNear) {
  const std::vector<int64_t> ids{1, 2};
  for (const bool with_residual : {true, false})
    for (const bool relu : {true, false}) {
      if (with_residual && !relu) continue;
      BatchNorm norm = fresh_norm(6);
      fill_with_waves(*norm);
      const auto run = [&](bool low) {
        at::autocast::set_autocast_enabled(at::kCPU, low);
        at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
        bf16_panels::use(low ? bf16_panels::Way::kPlain : bf16_panels::Way::kAsTheMachine);
        task::Context ctx(1, 0, true, ids);
        torch::Tensor x = (wave({2, 6, 5, 3}, 0.0, torch::kFloat32) + 50.0).requires_grad_(true),
                      residual = wave({2, 6, 5, 3}, 2.0, torch::kFloat32).requires_grad_(true);
        const torch::Tensor out = fused::norm_relu(norm, x, with_residual ? residual : torch::Tensor(), relu, ctx);
        norm->zero_grad();
        (out * wave({2, 6, 5, 3}, 1.0, torch::kFloat32)).sum().backward();
        at::autocast::set_autocast_enabled(at::kCPU, false);
        bf16_panels::use(bf16_panels::Way::kAsTheMachine);
        std::vector<torch::Tensor> all{out.detach(), x.grad(), norm->weight.grad().clone(), norm->bias.grad().clone()};
        if (with_residual) all.push_back(residual.grad());
        return all;
      };
      const auto full = run(false), low = run(true);
      EXPECT_TRUE(torch::equal(full[0], low[0]));
      EXPECT_FALSE(torch::equal(full[1], low[1]));  // the control: something was rounded
      for (size_t i = 0; i < full.size(); ++i) EXPECT_LE(largest_difference(low[i], full[i]), 1e-2) << i;
    }
}

TEST(Overlap, PoolsAreasAndMakesRatiosAtTheEnd) {
  Overlap overlap({"vehicle"});
  // Two batches: 1 of 2 hit, then 1 of 1 with one false alarm.
  overlap.add(torch::tensor({1.0f, -1.0f, -1.0f, -1.0f}).view({1, 1, 2, 2}),
              torch::tensor({1.0f, 1.0f, 0.0f, 0.0f}).view({1, 1, 2, 2}));
  overlap.add(torch::tensor({1.0f, 1.0f, -1.0f, -1.0f}).view({1, 1, 2, 2}),
              torch::tensor({1.0f, 0.0f, 0.0f, 0.0f}).view({1, 1, 2, 2}));
  const auto sums = overlap.take();
  const auto metrics = overlap.metrics(sums);
  EXPECT_DOUBLE_EQ(metrics.at("vehicle_iou"), 2.0 / 4.0);  // not the mean of 1/2 and 1/2 by luck:
  EXPECT_DOUBLE_EQ(metrics.at("miou"), (2.0 / 4.0 + 4.0 / 6.0) / 2);
  EXPECT_DOUBLE_EQ(metrics.at("macc"), (2.0 / 3.0 + 4.0 / 5.0) / 2);
  EXPECT_DOUBLE_EQ(metrics.at("aacc"), 6.0 / 8.0);
  EXPECT_EQ(overlap.take(), std::vector<double>(sums.size(), 0.0)) << "begun anew";
  EXPECT_EQ(overlap.metrics(overlap.take()).count("vehicle_iou"), 0u) << "a ratio of nothing is left out";
}

}  // namespace
}  // namespace redline::models::lift_splat
