// One Conformer layer (arXiv 2005.08100) with NeMo's names, and the parts it is made of. Each part has a plain path of
// tensor operations and a fused path (conformer_*_fused.cpp) that does LayerNorm, the products, activation, dropout and
// the residual sum of one part in one autograd node. Rows are frames: x_BTD, valid where t < lengths[b].
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "models/layers/batch_norm.h"
#include "models/layers/keyed_init.h"
#include "models/speech_ssl/options.h"
#include "task/context.h"

namespace redline::models::speech {

// What all layers of one pass share.
struct EncoderPass {
  std::vector<int64_t> lengths;                   // valid frames per clip
  torch::Tensor valid_BT;                         // bool, on the device of x
  torch::Tensor positions_PD;                     // 2T - 1 relative positions, +(T-1) first
  int64_t left_context = -1, right_context = -1;  // -1 = all
  bool chunked = false;
  task::Context* ctx = nullptr;
  bool fused = false;
  torch::Tensor hidden_BTT;  // hidden_mask(), where it is known already (a compiled step)

  // Keys [first, last) that query t of a clip with `length` frames may see.
  std::pair<int64_t, int64_t> visible(int64_t t, int64_t length) const;
  torch::Tensor hidden_mask(int64_t time) const;  // bool [B, 1, T, T], true = not visible; for the plain path
};

struct LayerNormImpl : torch::nn::Module {
  explicit LayerNormImpl(int64_t dim);
  void initialise();
  torch::Tensor forward(const torch::Tensor& x) const { return torch::layer_norm(x, {weight.size(0)}, weight, bias); }
  torch::Tensor weight, bias;
};
TORCH_MODULE(LayerNorm);

struct FeedForwardImpl : torch::nn::Module {
  FeedForwardImpl(int64_t dim, int64_t hidden, bool use_bias);
  void initialise(uint64_t seed, const std::string& name);
  Affine linear1{nullptr}, linear2{nullptr};
};
TORCH_MODULE(FeedForward);

struct SelfAttentionImpl : torch::nn::Module {
  SelfAttentionImpl(int64_t dim, int64_t num_heads, bool use_bias);
  void initialise(uint64_t seed, const std::string& name);
  Affine linear_q{nullptr}, linear_k{nullptr}, linear_v{nullptr}, linear_out{nullptr}, linear_pos{nullptr};
  torch::Tensor pos_bias_u, pos_bias_v;
  int64_t heads;
};
TORCH_MODULE(SelfAttention);

struct ConvolutionImpl : torch::nn::Module {
  ConvolutionImpl(int64_t dim, int64_t kernel, int64_t left, bool use_bias);
  void initialise(uint64_t seed, const std::string& name);
  Affine pointwise_conv1{nullptr}, depthwise_conv{nullptr}, pointwise_conv2{nullptr};
  BatchNorm batch_norm{nullptr};
  int64_t left_context;
};
TORCH_MODULE(Convolution);

// r + factor * drop(feed_forward(norm(r))), r + drop(attention(norm(r))), r + drop(convolution(norm(r))).
// `place` names the dropout draws, e.g. "layers.3.feed_forward1".
torch::Tensor feed_forward_part(const LayerNorm& norm, const FeedForward& ff, const torch::Tensor& r, double factor,
                                double dropout, const std::string& place, const EncoderPass& pass);
torch::Tensor attention_part(const LayerNorm& norm, const SelfAttention& attention, const torch::Tensor& r,
                             double dropout, double dropout_att, const std::string& place, const EncoderPass& pass);
torch::Tensor convolution_part(const LayerNorm& norm, const Convolution& conv, const torch::Tensor& r, double dropout,
                               const std::string& place, const EncoderPass& pass);

namespace plain {
torch::Tensor feed_forward_part(const LayerNorm& norm, const FeedForward& ff, const torch::Tensor& r, double factor,
                                double dropout, const std::string& place, const EncoderPass& pass);
torch::Tensor attention_part(const LayerNorm& norm, const SelfAttention& attention, const torch::Tensor& r,
                             double dropout, double dropout_att, const std::string& place, const EncoderPass& pass);
torch::Tensor convolution_part(const LayerNorm& norm, const Convolution& conv, const torch::Tensor& r, double dropout,
                               const std::string& place, const EncoderPass& pass);
}  // namespace plain

struct ConformerLayerImpl : torch::nn::Module {
  ConformerLayerImpl(const EncoderOptions& options, int64_t index);
  void initialise(uint64_t seed, const std::string& name);
  torch::Tensor forward(const torch::Tensor& x_BTD, const EncoderPass& pass);

  LayerNorm norm_feed_forward1{nullptr}, norm_self_att{nullptr}, norm_conv{nullptr}, norm_feed_forward2{nullptr},
      norm_out{nullptr};
  FeedForward feed_forward1{nullptr}, feed_forward2{nullptr};
  SelfAttention self_attn{nullptr};
  Convolution conv{nullptr};
  double dropout, dropout_att;
  std::string place;
};
TORCH_MODULE(ConformerLayer);

}  // namespace redline::models::speech
