#include "models/lift_splat/task.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "models/layers/layer_test_tools.h"
#include "models/lift_splat/work_estimate.h"

namespace redline::models::lift_splat {
namespace {

using models::testing::largest_difference;
using models::testing::wave;

Options tiny_options() {
  Options o;
  o.grid.xbound = o.grid.ybound = {-16.0, 16.0, 4.0};
  o.grid.dbound = {4.0, 16.0, 4.0};
  o.image_size = {32, 64};
  o.cam_channels = 8;
  o.neck_channels = 16;
  o.backbone.embed_dim = 8;
  o.backbone.depths = {1, 1, 2, 1};
  o.backbone.num_heads = {1, 1, 2, 2};
  o.backbone.window_size = 3;
  o.backbone.drop_path_rate = 0.3;
  return o;
}

std::string refusal(const Options& options) {
  try {
    options.check();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(LiftSplatOptions, RefusesWhatCannotMeet) {
  EXPECT_EQ(refusal(tiny_options()), "");
  Options o = tiny_options();
  o.image_size = {128, 350};
  EXPECT_NE(refusal(o).find("multiples of 32"), std::string::npos);
  o = tiny_options();
  o.grid.xbound = {-50.0, 50.0, 1.0};  // 100 cells
  EXPECT_NE(refusal(o).find("multiples of 8"), std::string::npos);
  o = tiny_options();
  o.grid.dbound = {4.0, 4.0, 1.0};
  EXPECT_NE(refusal(o).find("model.grid.dbound"), std::string::npos);
  o = tiny_options();
  o.backbone.num_heads = {3, 1, 1, 1};
  EXPECT_NE(refusal(o).find("stage 0"), std::string::npos);
  o = tiny_options();
  o.nuscenes.ncams = 7;
  EXPECT_NE(refusal(o).find("ncams"), std::string::npos);
}

task::Batch some_batch(const LiftSplatTask& task, int64_t size) {
  task::Batch batch = task.worst_case_batch(size);
  batch.tensors["imgs"] = wave(batch.tensors["imgs"].sizes().vec(), 0.1, torch::kFloat32);
  batch.tensors["binimgs"] =
      wave(batch.tensors["binimgs"].sizes().vec(), 0.5, torch::kFloat32).gt(0.9).to(torch::kFloat32);
  return batch;
}

TEST(LiftSplatTask, FusedEqualsPlainForBothNecksAndSeveralClasses) {
  for (const char* neck : {"up", "fpn"}) {
    Options o = tiny_options();
    o.neck = neck;
    o.classes = {"vehicle", "human"};
    o.grid.zbound = {-4.0, 4.0, 4.0};  // two planes
    std::vector<torch::Tensor> losses, predictions, gradients;
    for (const bool fused : {true, false}) {
      o.fused_kernels = fused;
      LiftSplatTask task(o, 11);
      const task::Batch batch = some_batch(task, 2);
      task::check_batch(task.schema(), batch);
      task::Context ctx(3, 1, true, batch.sample_ids);
      ctx.want_outputs(true);
      const task::Loss loss = task.loss(batch, ctx);
      loss.value.backward();
      losses.push_back(loss.value.detach());
      predictions.push_back(ctx.outputs().at("preds"));
      for (const auto& item : task.module().named_parameters())
        if (item.key() == "camencode.depthnet.weight") gradients.push_back(item.value().grad());
    }
    EXPECT_LE(largest_difference(losses[0], losses[1]), 1e-5);
    EXPECT_LE(largest_difference(predictions[0], predictions[1]), 1e-3);
    EXPECT_LE(largest_difference(gradients[0], gradients[1]), 5e-2);
  }
}

TEST(LiftSplatTask, ComputedAgainInBackwardGivesTheSameNumbers) {
  for (const bool fused : {true, false}) {
    std::vector<torch::Tensor> kept;
    for (const bool again : {false, true}) {
      Options o = tiny_options();
      o.fused_kernels = fused;
      o.backbone.gradient_checkpointing = again;
      LiftSplatTask task(o, 11);
      const task::Batch batch = some_batch(task, 2);
      task::Context ctx(3, 1, true, batch.sample_ids);
      task.loss(batch, ctx).value.backward();
      const std::vector<torch::Tensor> parameters = task.module().parameters();
      if (!again) {
        for (const torch::Tensor& p : parameters) kept.push_back(p.grad().defined() ? p.grad().clone() : p.grad());
        continue;
      }
      for (size_t i = 0; i < kept.size(); ++i) {
        if (!kept[i].defined()) continue;
        EXPECT_TRUE(torch::equal(parameters[i].grad(), kept[i])) << i << fused;
      }
    }
  }
}

TEST(LiftSplatTask, TheSameStepTwiceIsBitEqual) {
  LiftSplatTask task(tiny_options(), 11);
  const task::Batch batch = some_batch(task, 2);
  std::vector<torch::Tensor> gradients;
  for (int repeat = 0; repeat < 2; ++repeat) {
    task.module().zero_grad();
    task::Context ctx(3, 1, true, batch.sample_ids);
    task.loss(batch, ctx).value.backward();
    gradients.push_back(torch::cat([&] {
      std::vector<torch::Tensor> all;
      for (const torch::Tensor& p : task.module().parameters()) all.push_back(p.grad().reshape({-1}));
      return all;
    }()));
  }
  EXPECT_TRUE(torch::equal(gradients[0], gradients[1]));
}

TEST(LiftSplatTask, ARotationThatIsNoneIsNamed) {
  LiftSplatTask task(tiny_options(), 1);
  task::Batch batch = some_batch(task, 2);
  batch.tensors["rots"][1][3] *= 1.2;
  task::Context ctx(3, 1, true, batch.sample_ids);
  try {
    task.loss(batch, ctx);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("camera 3 of sample 1"), std::string::npos) << error.what();
  }
}

TEST(LiftSplatTask, ValidationPoolsOverBatches) {
  LiftSplatTask task(tiny_options(), 1);
  task.module().eval();
  const task::Batch batch = some_batch(task, 2);
  const torch::NoGradGuard no_grad;
  task::Context ctx(3, -1, false, batch.sample_ids);
  task.loss(batch, ctx);
  const std::vector<double> once = task.take_validation_sums();
  task.loss(batch, ctx);
  task.loss(batch, ctx);
  const std::vector<double> twice = task.take_validation_sums();
  for (size_t i = 0; i < once.size(); ++i) EXPECT_DOUBLE_EQ(twice[i], 2 * once[i]);
  EXPECT_EQ(task.finish_validation(once), task.finish_validation(twice));
  EXPECT_GT(task.flops_per_sample(1.0), 0.0);
}

TEST(LiftSplatWork, ProductsThatAreMadeAreFewerThanTheDirectSums) {
  Options o;  // Swin-T at 128 x 352
  o.backbone.drop_path_rate = 0.0;
  // Of the second BEV convolution at half the grid, 256 to 256: 25 x 25 tiles of 36 products instead of 9 a cell.
  Options one = o, two = o;
  two.cam_channels = one.cam_channels + 16;
  // 7x7 at half the grid and the depth's 1x1, three times forward's work, two operations a product.
  const double expected = 6.0 * (49.0 * 2 * 100 * 100 * 64 * 16 + 2.0 * 6 * 8 * 22 * 512 * 16);
  EXPECT_DOUBLE_EQ(product_flops(two, 2, 6) - product_flops(one, 2, 6), expected);
  two = one;
  two.neck_channels = 1024;  // 12 pictures of 2 x 6 tiles; below, 4 x 11 pixels that are never enlarged
  const double neck = 36.0 * 144 * 384 * 512 + 9.0 * 12 * 44 * 768 * 512 + 36.0 * 144 * (1024.0 * 1024 - 512.0 * 512) +
                      12.0 * 176 * 105 * 512;
  EXPECT_NEAR((product_flops(two, 2, 6) - product_flops(one, 2, 6)) / (6.0 * neck), 1.0, 1e-12);
  const double made = product_flops(o, 2, 6), direct = 2 * sample_flops(o, 6);
  EXPECT_LT(made, 0.6 * direct);
  EXPECT_GT(made, 0.2 * direct);
  // Too few tiles for Winograd: the direct sum.
  o.image_size = {32, 32};
  EXPECT_GT(product_flops(o, 1, 1), 0.0);
}

}  // namespace
}  // namespace redline::models::lift_splat
