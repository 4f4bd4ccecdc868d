// Swin Transformer as the segmentation backbones use it (Liu et al. 2021; names of Swin-Transformer-Semantic-
// Segmentation): maps of any size, padded to whole windows in every block, with a norm after each stage that is read.
// Padded places are not masked: they take part in attention with the value of the bias, as in the reference.
//
// Shapes: M pictures (cameras of all samples), H x W places of a map, C channels. Maps are channels last.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "models/layers/keyed_init.h"
#include "models/lift_splat/options.h"
#include "models/lift_splat/windows.h"
#include "task/context.h"

namespace redline::models::lift_splat {

struct NormImpl : torch::nn::Module {
  explicit NormImpl(int64_t width);
  torch::Tensor forward(const torch::Tensor& x) const;  // over the last dimension, in float32
  torch::Tensor weight, bias;
};
TORCH_MODULE(Norm);

struct WindowAttentionImpl : torch::nn::Module {
  WindowAttentionImpl(int64_t width, int64_t heads, int64_t window, bool qkv_bias);
  torch::Tensor bias_HNN() const;  // relative position bias of each head, [heads, window^2, window^2]
  int64_t heads, window;
  torch::Tensor relative_position_bias_table, relative_position_index;
  Affine qkv{nullptr}, proj{nullptr};
};
TORCH_MODULE(WindowAttention);

struct MlpImpl : torch::nn::Module {
  MlpImpl(int64_t width, int64_t hidden);
  Affine fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(Mlp);

struct SwinBlockImpl : torch::nn::Module {
  SwinBlockImpl(const BackboneOptions& options, int64_t stage, int64_t index, double drop_path, const std::string& path,
                uint64_t seed);
  torch::Tensor forward(const torch::Tensor& x_MHWC, const WindowMap& map, task::Context& ctx, bool fused);

  int64_t shift;
  double drop_path;
  std::string path;  // names the draws of stochastic depth
  Norm norm1{nullptr}, norm2{nullptr};
  WindowAttention attn{nullptr};
  Mlp mlp{nullptr};

 private:
  torch::Tensor attention_branch(const torch::Tensor& x_MHWC, const WindowMap& map) const;
  torch::Tensor mlp_branch(const torch::Tensor& x_MHWC) const;
};
TORCH_MODULE(SwinBlock);

// Four neighbours side by side, normalised and halved in width. Odd maps are padded with zeros.
struct PatchMergingImpl : torch::nn::Module {
  PatchMergingImpl(int64_t width, const std::string& path, uint64_t seed);
  torch::Tensor forward(const torch::Tensor& x_MHWC, bool fused) const;
  Norm norm{nullptr};
  Affine reduction{nullptr};
};
TORCH_MODULE(PatchMerging);

struct SwinStageImpl : torch::nn::Module {
  SwinStageImpl(const BackboneOptions& options, int64_t stage, const std::vector<double>& drop_path,
                const std::string& path, uint64_t seed);
  torch::Tensor forward(torch::Tensor x_MHWC, task::Context& ctx, bool fused);
  int64_t window;
  bool recompute;  // of a block only its input is kept
  std::vector<SwinBlock> blocks;
  PatchMerging downsample{nullptr};  // of all stages but the last
};
TORCH_MODULE(SwinStage);

struct PatchEmbedImpl : torch::nn::Module {
  PatchEmbedImpl(const BackboneOptions& options, const std::string& path, uint64_t seed);
  torch::Tensor forward(torch::Tensor images_MCHW) const;  // [M, H/4, W/4, C]
  int64_t patch;
  Affine proj{nullptr};
  Norm norm{nullptr};
};
TORCH_MODULE(PatchEmbed);

struct SwinImpl : torch::nn::Module {
  SwinImpl(const BackboneOptions& options, const std::string& path, uint64_t seed);
  // The normed maps of the last two stages, at a sixteenth and a thirty-second: [M, H, W, C] each.
  struct Maps {
    torch::Tensor stage2_MHWC, stage3_MHWC;
  };
  Maps forward(const torch::Tensor& images_MCHW, task::Context& ctx, bool fused);

 private:
  PatchEmbed patch_embed_{nullptr};
  std::vector<SwinStage> layers_;
  Norm norm2_{nullptr}, norm3_{nullptr};
};
TORCH_MODULE(Swin);

}  // namespace redline::models::lift_splat
