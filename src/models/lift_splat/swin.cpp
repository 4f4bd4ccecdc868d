#include "models/lift_splat/swin.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cmath>

#include "models/layers/recompute.h"
#include "models/lift_splat/swin_fused.h"

namespace redline::models::lift_splat {

namespace {

constexpr double kInitDeviation = 0.02;

Affine swin_linear(int64_t out, int64_t in, bool bias, const std::string& path, uint64_t seed) {
  Affine layer(std::vector<int64_t>{out, in}, bias);
  fill_normal(layer->weight, kInitDeviation, seed, path + ".weight");
  const torch::NoGradGuard no_grad;
  if (bias) layer->bias.zero_();
  return layer;
}

}  // namespace

NormImpl::NormImpl(int64_t width) {
  weight = register_parameter("weight", torch::ones({width}));
  bias = register_parameter("bias", torch::zeros({width}));
}

torch::Tensor NormImpl::forward(const torch::Tensor& x) const {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return at::layer_norm(x.to(weight.scalar_type()), {weight.size(0)}, weight, bias, 1e-5);
}

WindowAttentionImpl::WindowAttentionImpl(int64_t width, int64_t num_heads, int64_t side, bool qkv_bias)
    : heads(num_heads), window(side) {
  relative_position_bias_table =
      register_parameter("relative_position_bias_table", torch::empty({(2 * side - 1) * (2 * side - 1), num_heads}));
  relative_position_index = register_buffer("relative_position_index", relative_index(side));
  qkv = register_module("qkv", Affine(std::vector<int64_t>{3 * width, width}, qkv_bias));
  proj = register_module("proj", Affine(std::vector<int64_t>{width, width}, true));
}

torch::Tensor WindowAttentionImpl::bias_HNN() const {
  const int64_t n = window * window;
  return relative_position_bias_table.index_select(0, relative_position_index.view({-1}))
      .view({n, n, heads})
      .permute({2, 0, 1})
      .contiguous();
}

MlpImpl::MlpImpl(int64_t width, int64_t hidden) {
  fc1 = register_module("fc1", Affine(std::vector<int64_t>{hidden, width}, true));
  fc2 = register_module("fc2", Affine(std::vector<int64_t>{width, hidden}, true));
}

SwinBlockImpl::SwinBlockImpl(const BackboneOptions& options, int64_t stage, int64_t index, double chance,
                             const std::string& place, uint64_t seed)
    : shift(index % 2 == 0 ? 0 : options.window_size / 2), drop_path(chance), path(place) {
  const int64_t width = options.width(stage);
  const auto hidden = static_cast<int64_t>(static_cast<double>(width) * options.mlp_ratio);
  norm1 = register_module("norm1", Norm(width));
  attn = register_module("attn", WindowAttention(width, options.num_heads[static_cast<size_t>(stage)],
                                                 options.window_size, options.qkv_bias));
  norm2 = register_module("norm2", Norm(width));
  mlp = register_module("mlp", Mlp(width, hidden));
  fill_normal(attn->relative_position_bias_table, kInitDeviation, seed, path + ".attn.relative_position_bias_table");
  const torch::NoGradGuard no_grad;
  for (auto [layer, name] : {std::pair{attn->qkv, ".attn.qkv"}, std::pair{attn->proj, ".attn.proj"},
                             std::pair{mlp->fc1, ".mlp.fc1"}, std::pair{mlp->fc2, ".mlp.fc2"}}) {
    fill_normal(layer->weight, kInitDeviation, seed, path + name + ".weight");
    if (layer->bias.defined()) layer->bias.zero_();
  }
}

torch::Tensor SwinBlockImpl::attention_branch(const torch::Tensor& x_MHWC, const WindowMap& map) const {
  const int64_t pictures = x_MHWC.size(0), width = x_MHWC.size(3), n = map.places(), heads = attn->heads;
  torch::Tensor x = norm1->forward(x_MHWC);
  x = torch::constant_pad_nd(x, {0, 0, 0, map.padded_width() - map.width, 0, map.padded_height() - map.height});
  if (shift > 0) x = x.roll({-shift, -shift}, {1, 2});
  x = x.view({pictures, map.windows_down, map.window, map.windows_across, map.window, width})
          .permute({0, 1, 3, 2, 4, 5})
          .reshape({-1, n, width});
  const torch::Tensor qkv =
      at::linear(x, attn->qkv->weight, attn->qkv->bias).view({-1, n, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
  const double scale = 1.0 / std::sqrt(static_cast<double>(width / heads));
  torch::Tensor weights = at::matmul(qkv[0] * scale, qkv[1].transpose(-2, -1)).to(torch::kFloat32);
  weights = weights + attn->bias_HNN();
  if (shift > 0)
    weights = (weights.view({pictures, map.windows(), heads, n, n}) +
               map.mask(shift).to(weights.device()).unsqueeze(1).unsqueeze(0))
                  .view({-1, heads, n, n});
  x = at::matmul(weights.softmax(-1).to(qkv.scalar_type()), qkv[2]).transpose(1, 2).reshape({-1, n, width});
  x = at::linear(x, attn->proj->weight, attn->proj->bias)
          .view({pictures, map.windows_down, map.windows_across, map.window, map.window, width})
          .permute({0, 1, 3, 2, 4, 5})
          .reshape({pictures, map.padded_height(), map.padded_width(), width});
  if (shift > 0) x = x.roll({shift, shift}, {1, 2});
  return x.narrow(1, 0, map.height).narrow(2, 0, map.width).to(torch::kFloat32);
}

torch::Tensor SwinBlockImpl::mlp_branch(const torch::Tensor& x_MHWC) const {
  const torch::Tensor hidden = at::gelu(at::linear(norm2->forward(x_MHWC), mlp->fc1->weight, mlp->fc1->bias));
  return at::linear(hidden, mlp->fc2->weight, mlp->fc2->bias).to(torch::kFloat32);
}

torch::Tensor SwinBlockImpl::forward(const torch::Tensor& x_MHWC, const WindowMap& map, task::Context& ctx,
                                     bool use_fused) {
  const std::string first = path + ".drop_path1", second = path + ".drop_path2";
  if (use_fused && fused::fits(x_MHWC, attn->heads)) {
    const torch::Tensor x = fused::attention_part(*this, x_MHWC, map, fused::kept(ctx, drop_path, first, x_MHWC));
    return fused::mlp_part(*this, x, fused::kept(ctx, drop_path, second, x_MHWC));
  }
  const torch::Tensor x = x_MHWC + ctx.drop_path(attention_branch(x_MHWC, map), drop_path, first);
  return x + ctx.drop_path(mlp_branch(x), drop_path, second);
}

PatchMergingImpl::PatchMergingImpl(int64_t width, const std::string& path, uint64_t seed) {
  norm = register_module("norm", Norm(4 * width));
  reduction = register_module("reduction", swin_linear(2 * width, 4 * width, false, path + ".reduction", seed));
}

torch::Tensor PatchMergingImpl::forward(const torch::Tensor& x_MHWC, bool use_fused) const {
  if (use_fused && fused::fits(x_MHWC, 1)) return fused::merging_part(*this, x_MHWC);
  torch::Tensor x = x_MHWC;
  if (x.size(1) % 2 != 0 || x.size(2) % 2 != 0)
    x = torch::constant_pad_nd(x, {0, 0, 0, x.size(2) % 2, 0, x.size(1) % 2});
  const int64_t h = x.size(1) / 2, w = x.size(2) / 2, c = x.size(3);
  // Columns before rows: (even, even), (odd row), (odd column), (odd, odd), which is what the weights expect.
  x = x.view({x.size(0), h, 2, w, 2, c}).permute({0, 1, 3, 4, 2, 5}).reshape({x.size(0), h, w, 4 * c});
  return at::linear(norm->forward(x), reduction->weight).to(torch::kFloat32);
}

SwinStageImpl::SwinStageImpl(const BackboneOptions& options, int64_t stage, const std::vector<double>& drop_path,
                             const std::string& path, uint64_t seed)
    : window(options.window_size), recompute(options.gradient_checkpointing) {
  auto list = register_module("blocks", torch::nn::ModuleList());
  for (size_t i = 0; i < drop_path.size(); ++i) {
    blocks.emplace_back(options, stage, static_cast<int64_t>(i), drop_path[i], path + ".blocks." + std::to_string(i),
                        seed);
    list->push_back(blocks.back());
  }
  if (stage + 1 < options.stages())
    downsample = register_module("downsample", PatchMerging(options.width(stage), path + ".downsample", seed));
}

torch::Tensor SwinStageImpl::forward(torch::Tensor x_MHWC, task::Context& ctx, bool use_fused) {
  const WindowMap map(x_MHWC.size(1), x_MHWC.size(2), window);
  for (SwinBlock& block : blocks) {
    if (!recompute) {
      x_MHWC = block->forward(x_MHWC, map, ctx, use_fused);
      continue;
    }
    const DrawingBlock once = [block, map, use_fused](const std::vector<torch::Tensor>& in,
                                                      task::Context& again) -> std::vector<torch::Tensor> {
      return {block.ptr()->forward(in[0], map, again, use_fused)};
    };
    x_MHWC = recomputed({x_MHWC}, ctx, once)[0];
  }
  return x_MHWC;
}

PatchEmbedImpl::PatchEmbedImpl(const BackboneOptions& options, const std::string& path, uint64_t seed)
    : patch(options.patch_size) {
  proj = register_module("proj", Affine(std::vector<int64_t>{options.embed_dim, 3, patch, patch}, true));
  default_init(proj->weight, proj->bias, seed, path + ".proj");
  if (options.patch_norm) norm = register_module("norm", Norm(options.embed_dim));
}

torch::Tensor PatchEmbedImpl::forward(torch::Tensor images_MCHW) const {
  const int64_t below = (patch - images_MCHW.size(2) % patch) % patch,
                right = (patch - images_MCHW.size(3) % patch) % patch;
  if (below > 0 || right > 0) images_MCHW = torch::constant_pad_nd(images_MCHW, {0, right, 0, below});
  const torch::Tensor x =
      at::conv2d(images_MCHW, proj->weight, proj->bias, patch).permute({0, 2, 3, 1}).to(torch::kFloat32).contiguous();
  return norm.is_empty() ? x : norm->forward(x);
}

SwinImpl::SwinImpl(const BackboneOptions& options, const std::string& path, uint64_t seed) {
  patch_embed_ = register_module("patch_embed", PatchEmbed(options, path + ".patch_embed", seed));
  int64_t total = 0, done = 0;
  for (int64_t depth : options.depths) total += depth;
  auto list = register_module("layers", torch::nn::ModuleList());
  for (int64_t stage = 0; stage < options.stages(); ++stage) {
    std::vector<double> drop_path;
    for (int64_t i = 0; i < options.depths[static_cast<size_t>(stage)]; ++i, ++done)
      drop_path.push_back(
          total > 1 ? options.drop_path_rate * static_cast<double>(done) / static_cast<double>(total - 1) : 0.0);
    layers_.emplace_back(options, stage, drop_path, path + ".layers." + std::to_string(stage), seed);
    list->push_back(layers_.back());
  }
  norm2_ = register_module("norm2", Norm(options.width(2)));
  norm3_ = register_module("norm3", Norm(options.width(3)));
}

SwinImpl::Maps SwinImpl::forward(const torch::Tensor& images_MCHW, task::Context& ctx, bool use_fused) {
  Maps maps;
  torch::Tensor x = patch_embed_->forward(images_MCHW);
  for (size_t stage = 0; stage < layers_.size(); ++stage) {
    x = layers_[stage]->forward(x, ctx, use_fused);
    if (stage == 2) maps.stage2_MHWC = norm2_->forward(x);
    if (stage == 3) maps.stage3_MHWC = norm3_->forward(x);
    if (!layers_[stage]->downsample.is_empty()) x = layers_[stage]->downsample->forward(x, use_fused);
  }
  return maps;
}

}  // namespace redline::models::lift_splat
