// A Transformer layer on packed rows. Parameters carry the names of torch.nn.TransformerEncoderLayer. Between layers
// travel the residual stream and its norm for the next block, because one kernel makes both.
//
// Shapes: N rows (real positions of all sequences), B sequences, C width.
#pragma once

#include <torch/torch.h>

#include <string>

#include "models/layers/bias_activation.h"
#include "models/layers/keyed_init.h"
#include "models/layers/packed_attention.h"
#include "models/layers/packed_rows.h"
#include "models/layers/residual_norm.h"
#include "task/context.h"

namespace redline::models::sequence_vae {

struct LayerOptions {
  int64_t width = 256, heads = 8, hidden = 1024;
  double dropout = 0.1;
  Activation activation = Activation::Gelu;
  bool norm_first = true;
  bool recompute = false;  // in backward, from the input
};

struct NormImpl : torch::nn::Module {
  explicit NormImpl(int64_t width);
  NormWeights weights() const { return {weight, bias}; }
  torch::Tensor weight, bias;
};
TORCH_MODULE(Norm);

struct SelfAttentionImpl : torch::nn::Module {
  explicit SelfAttentionImpl(int64_t width);
  torch::Tensor in_proj_weight, in_proj_bias;
  Affine out_proj{nullptr};
};
TORCH_MODULE(SelfAttention);

// What a block hands to the next one. With norm_first `input` is the norm of `residual`; without, they are one tensor.
struct Stream {
  torch::Tensor residual, input;
};

struct TransformerLayerImpl : torch::nn::Module {
  TransformerLayerImpl(const LayerOptions& options, const std::string& path, uint64_t seed);

  // `next` is the norm that the following block reads through (with norm_first; unused otherwise).
  Stream forward(const Stream& in, const Rows& rows, bool causal, const Norm& next, task::Context& ctx);
  // The same for the last position of each sequence only: keys and values of all rows, everything else of B rows.
  Stream forward_last(const Stream& in, const Rows& rows, const Rows& last, const Norm& next, task::Context& ctx);

  // The same with padding, x [B, T, C]: `hidden` [B, 1, T or 1, T] are the pairs that attention must not see. With
  // `last_B` only that position of each sequence is computed, and x is [B, 1, C] afterwards.
  Stream forward_padded(const Stream& in, const torch::Tensor& hidden, const torch::Tensor& last_B, const Norm& next,
                        task::Context& ctx);

  // One new position per sequence with the keys and values of the earlier ones, for generation: x [B, C].
  struct Cache {
    torch::Tensor keys, values;  // [B, T, C]
  };
  Stream forward_step(const Stream& in, Cache& cache, const Norm& next);

  LayerOptions options;
  std::string path;  // names the places of dropout
  Norm norm1{nullptr}, norm2{nullptr};
  SelfAttention self_attn{nullptr};
  Affine linear1{nullptr}, linear2{nullptr};

 private:
  Stream forward_once(const Stream& in, const Rows& rows, bool causal, const Norm& next, task::Context& ctx);
  Stream after_attention(const torch::Tensor& residual, const torch::Tensor& mixed, const Rows& rows, const Norm& next,
                         task::Context& ctx);
};
TORCH_MODULE(TransformerLayer);

}  // namespace redline::models::sequence_vae
