// The layers as LibTorch's operators: what the fused ones are held against, and what runs where those do not fit.
#include <ATen/ATen.h>

#include "models/convnext/depthwise.h"
#include "models/convnext/model.h"
#include "models/layers/gemm.h"
#include "models/layers/row_kernels.h"

namespace redline::models::convnext {

namespace {

// Half has no room for a layer scale of 1e-6 times a weight, and no processor here is fast at it.
bool can_fuse(const torch::Tensor& x, const torch::Tensor& weight, const Pass& pass) {
  return pass.fused && on_plain_cpu(x) && x.scalar_type() == torch::kFloat32 &&
         weight.scalar_type() == torch::kFloat32 && gemm_type() != torch::kHalf;
}

torch::Tensor plain_norm(const torch::Tensor& x, const Affine& norm) {
  return torch::layer_norm(x, {x.size(-1)}, norm->weight, norm->bias, kNormEpsilon);
}

// [N, H, W, C]: each channel's length over the picture, relative to the mean over channels.
torch::Tensor response_norm(const torch::Tensor& x, const Affine& grn) {
  const torch::Tensor length = x.norm(2, {1, 2}, /*keepdim=*/true);
  const torch::Tensor relative = length / (length.mean(-1, /*keepdim=*/true) + kNormEpsilon);
  return x + torch::addcmul(grn->bias, grn->weight, x * relative);
}

}  // namespace

torch::Tensor patch_layer(const PatchLayer& layer, const torch::Tensor& x, const Pass& pass) {
  // The fused stem has no gradient for pictures; nobody asks for one in training.
  const bool fits = layer->norm_first || !x.requires_grad();
  if (fits && can_fuse(x, layer->conv->weight, pass)) return fused::patch_layer(layer, x);
  return plain::patch_layer(layer, x);
}

torch::Tensor block(const Block& b, const torch::Tensor& x, const Pass& pass) {
  if (b->mlp->grn.is_empty() && can_fuse(x, b->conv_dw->weight, pass)) return fused::block(b, x, pass);
  return plain::block(b, x, pass);
}

namespace plain {

torch::Tensor patch_layer(const PatchLayer& layer, const torch::Tensor& x) {
  const torch::Tensor in = layer->norm_first ? plain_norm(x, layer->norm) : x;
  const torch::Tensor out = torch::conv2d(in.permute({0, 3, 1, 2}), layer->conv->weight, layer->conv->bias, layer->size)
                                .permute({0, 2, 3, 1});
  return layer->norm_first ? out : plain_norm(out, layer->norm);
}

torch::Tensor block(const Block& b, const torch::Tensor& x, const Pass& pass) {
  torch::Tensor h;
  if (can_fuse(x, b->conv_dw->weight, pass))
    h = depthwise7(x, b->conv_dw->weight, b->conv_dw->bias);
  else
    h = torch::conv2d(x.permute({0, 3, 1, 2}), b->conv_dw->weight, b->conv_dw->bias, 1, 3, 1, x.size(3))
            .permute({0, 2, 3, 1});
  h = plain_norm(h, b->norm);
  h = at::gelu(torch::linear(h, b->mlp->fc1->weight, b->mlp->fc1->bias));
  if (!b->mlp->grn.is_empty()) h = response_norm(h, b->mlp->grn);
  h = torch::linear(h, b->mlp->fc2->weight, b->mlp->fc2->bias);
  if (b->gamma.defined()) h = h * b->gamma;
  return x + pass.ctx->drop_path(h, b->drop_path, b->place + ".drop_path");
}

}  // namespace plain

}  // namespace redline::models::convnext
