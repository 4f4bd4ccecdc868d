#include "models/lift_splat/reference_names.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "models/layers/layer_test_tools.h"
#include "models/lift_splat/swin.h"

namespace redline::models::lift_splat {
namespace {

using models::testing::largest_difference;
using models::testing::wave;

TEST(SwinNames, OfMicrosoftGetTheTrunksPrefix) {
  const auto renamed = names_of_swin({"patch_embed.proj.weight", "layers.0.blocks.0.attn.relative_position_bias_table",
                                      "layers.0.blocks.1.attn_mask", "layers.2.downsample.reduction.weight",
                                      "norm.weight", "head.bias"});
  EXPECT_EQ(renamed.at("patch_embed.proj.weight"), "camencode.trunk.patch_embed.proj.weight");
  EXPECT_EQ(renamed.at("layers.0.blocks.0.attn.relative_position_bias_table"),
            "camencode.trunk.layers.0.blocks.0.attn.relative_position_bias_table");
  EXPECT_EQ(renamed.at("layers.2.downsample.reduction.weight"), "camencode.trunk.layers.2.downsample.reduction.weight");
  for (const char* name : {"layers.0.blocks.1.attn_mask", "norm.weight", "head.bias"})
    EXPECT_EQ(renamed.at(name), "") << name;
}

TEST(SwinNames, OfMmsegBecomeMicrosofts) {
  const auto renamed = names_of_swin(
      {"backbone.patch_embed.projection.bias", "backbone.stages.0.blocks.0.attn.w_msa.relative_position_bias_table",
       "backbone.stages.1.blocks.0.ffn.layers.0.0.weight", "backbone.stages.1.blocks.0.ffn.layers.1.bias",
       "backbone.stages.1.blocks.0.norm2.bias", "backbone.stages.1.downsample.norm.weight", "backbone.norm0.weight",
       "backbone.norm3.weight", "decode_head.conv_seg.weight"});
  const std::map<std::string, std::string> expected{
      {"backbone.patch_embed.projection.bias", "camencode.trunk.patch_embed.proj.bias"},
      {"backbone.stages.0.blocks.0.attn.w_msa.relative_position_bias_table",
       "camencode.trunk.layers.0.blocks.0.attn.relative_position_bias_table"},
      {"backbone.stages.1.blocks.0.ffn.layers.0.0.weight", "camencode.trunk.layers.1.blocks.0.mlp.fc1.weight"},
      {"backbone.stages.1.blocks.0.ffn.layers.1.bias", "camencode.trunk.layers.1.blocks.0.mlp.fc2.bias"},
      {"backbone.stages.1.blocks.0.norm2.bias", "camencode.trunk.layers.1.blocks.0.norm2.bias"},
      {"backbone.stages.1.downsample.norm.weight", "camencode.trunk.layers.1.downsample.norm.weight"},
      {"backbone.norm0.weight", ""},
      {"backbone.norm3.weight", "camencode.trunk.norm3.weight"},
      {"decode_head.conv_seg.weight", ""}};
  EXPECT_EQ(renamed, expected);
}

TEST(SwinNames, OtherFilesAreLeftAlone) {
  EXPECT_TRUE(names_of_swin({"camencode.trunk.layers.0.blocks.0.attn.qkv.weight", "bevencode.conv1.weight"}).empty());
  EXPECT_TRUE(names_of_swin({"stages.0.blocks.0.conv_dw.weight", "stages.1.downsample.0.weight"}).empty());
}

// A plain reading of both definitions: mmseg unfolds 2x2 patches, Microsoft puts four strided maps side by side.
TEST(SwinNames, MergingOfBothProjectsIsTheSame) {
  const int64_t c = 5;
  const torch::Tensor x = wave({2, 4, 6, c}, 0.2, torch::kFloat32),
                      reduction = wave({2 * c, 4 * c}, 0.7, torch::kFloat32),
                      norm_weight = wave({4 * c}, 0.9, torch::kFloat32),
                      norm_bias = wave({4 * c}, 1.4, torch::kFloat32);
  const torch::Tensor unfolded = at::im2col(x.permute({0, 3, 1, 2}), {2, 2}, {1, 1}, {0, 0}, {2, 2}).transpose(1, 2);
  const torch::Tensor theirs = at::linear(at::layer_norm(unfolded, {4 * c}, norm_weight, norm_bias), reduction);
  PatchMerging merging(c, "merge", 1);
  const torch::NoGradGuard no_grad;
  merging->reduction->weight.copy_(in_order_of_swin("backbone.stages.0.downsample.reduction.weight", reduction));
  merging->norm->weight.copy_(in_order_of_swin("stages.0.downsample.norm.weight", norm_weight));
  merging->norm->bias.copy_(in_order_of_swin("stages.0.downsample.norm.bias", norm_bias));
  EXPECT_LE(largest_difference(merging->forward(x, false).reshape({2, 6, 2 * c}), theirs), 1e-5);
  EXPECT_FALSE(torch::equal(merging->reduction->weight, reduction)) << "the order differs";
  // Microsoft's own names keep their order.
  EXPECT_TRUE(torch::equal(in_order_of_swin("layers.0.downsample.reduction.weight", reduction), reduction));
}

TEST(SwinNames, ShapesThatAreNoMergedPatchesAreNamed) {
  for (const torch::Tensor& wrong : {torch::zeros({3, 8}), torch::zeros({4}), torch::zeros({3, 6})}) {
    try {
      in_order_of_swin("stages.1.downsample.reduction.weight", wrong);
      FAIL() << wrong.sizes();
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find("stages.1.downsample.reduction.weight"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("[2c, 4c]"), std::string::npos);
    }
  }
  EXPECT_THROW(in_order_of_swin("stages.1.downsample.norm.bias", torch::zeros({6})), CheckpointError);
}

}  // namespace
}  // namespace redline::models::lift_splat
