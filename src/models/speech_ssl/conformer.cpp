// Construction, initial weights and the order of the parts in a layer.
#include "models/speech_ssl/conformer.h"

namespace redline::models::speech {

std::pair<int64_t, int64_t> EncoderPass::visible(int64_t t, int64_t length) const {
  int64_t first = 0, last = length;
  if (chunked && right_context >= 0) {
    // NeMo's chunked_limited: chunks of right + 1 frames see themselves and left / (right + 1) chunks before.
    const int64_t size = right_context + 1, chunk = t / size;
    last = std::min(length, (chunk + 1) * size);
    if (left_context >= 0) first = std::max<int64_t>(0, (chunk - left_context / size) * size);
  } else {
    if (left_context >= 0) first = std::max<int64_t>(0, t - left_context);
    if (right_context >= 0) last = std::min(length, t + right_context + 1);
  }
  return {first, std::max(first, last)};
}

torch::Tensor EncoderPass::hidden_mask(int64_t time) const {
  if (hidden_BTT.defined()) return hidden_BTT;
  torch::Tensor mask = torch::ones({static_cast<int64_t>(lengths.size()), 1, time, time}, torch::kBool);
  bool* hidden = mask.mutable_data_ptr<bool>();
  for (size_t b = 0; b < lengths.size(); ++b)
    for (int64_t t = 0; t < lengths[b]; ++t) {
      const auto [first, last] = visible(t, lengths[b]);
      bool* row = hidden + (static_cast<int64_t>(b) * time + t) * time;
      std::fill(row + first, row + last, false);
    }
  return mask.to(valid_BT.device());
}

LayerNormImpl::LayerNormImpl(int64_t dim) {
  weight = register_parameter("weight", torch::empty({dim}));
  bias = register_parameter("bias", torch::empty({dim}));
}
void LayerNormImpl::initialise() {
  const torch::NoGradGuard no_grad;
  weight.fill_(1.0);
  bias.zero_();
}

FeedForwardImpl::FeedForwardImpl(int64_t dim, int64_t hidden, bool use_bias) {
  linear1 = register_module("linear1", Affine(std::vector<int64_t>{hidden, dim}, use_bias));
  linear2 = register_module("linear2", Affine(std::vector<int64_t>{dim, hidden}, use_bias));
}
void FeedForwardImpl::initialise(uint64_t seed, const std::string& name) {
  default_init(linear1->weight, linear1->bias, seed, name + ".linear1");
  default_init(linear2->weight, linear2->bias, seed, name + ".linear2");
}

SelfAttentionImpl::SelfAttentionImpl(int64_t dim, int64_t num_heads, bool use_bias) : heads(num_heads) {
  const std::vector<int64_t> square{dim, dim};
  linear_q = register_module("linear_q", Affine(square, use_bias));
  linear_k = register_module("linear_k", Affine(square, use_bias));
  linear_v = register_module("linear_v", Affine(square, use_bias));
  linear_out = register_module("linear_out", Affine(square, use_bias));
  linear_pos = register_module("linear_pos", Affine(square, false));
  pos_bias_u = register_parameter("pos_bias_u", torch::empty({heads, dim / heads}));
  pos_bias_v = register_parameter("pos_bias_v", torch::empty({heads, dim / heads}));
}
void SelfAttentionImpl::initialise(uint64_t seed, const std::string& name) {
  default_init(linear_q->weight, linear_q->bias, seed, name + ".linear_q");
  default_init(linear_k->weight, linear_k->bias, seed, name + ".linear_k");
  default_init(linear_v->weight, linear_v->bias, seed, name + ".linear_v");
  default_init(linear_out->weight, linear_out->bias, seed, name + ".linear_out");
  default_init(linear_pos->weight, linear_pos->bias, seed, name + ".linear_pos");
  const torch::NoGradGuard no_grad;
  pos_bias_u.zero_();
  pos_bias_v.zero_();
}

ConvolutionImpl::ConvolutionImpl(int64_t dim, int64_t kernel, int64_t left, bool use_bias) : left_context(left) {
  pointwise_conv1 = register_module("pointwise_conv1", Affine(std::vector<int64_t>{2 * dim, dim, 1}, use_bias));
  depthwise_conv = register_module("depthwise_conv", Affine(std::vector<int64_t>{dim, 1, kernel}, use_bias));
  batch_norm = register_module("batch_norm", BatchNorm(dim));
  pointwise_conv2 = register_module("pointwise_conv2", Affine(std::vector<int64_t>{dim, dim, 1}, use_bias));
}
void ConvolutionImpl::initialise(uint64_t seed, const std::string& name) {
  default_init(pointwise_conv1->weight, pointwise_conv1->bias, seed, name + ".pointwise_conv1");
  default_init(depthwise_conv->weight, depthwise_conv->bias, seed, name + ".depthwise_conv");
  batch_norm->initialise();
  default_init(pointwise_conv2->weight, pointwise_conv2->bias, seed, name + ".pointwise_conv2");
}

ConformerLayerImpl::ConformerLayerImpl(const EncoderOptions& o, int64_t index)
    : dropout(o.dropout), dropout_att(o.dropout_att), place("layers." + std::to_string(index)) {
  const int64_t hidden = o.d_model * o.ff_expansion_factor;
  norm_feed_forward1 = register_module("norm_feed_forward1", LayerNorm(o.d_model));
  feed_forward1 = register_module("feed_forward1", FeedForward(o.d_model, hidden, o.use_bias));
  norm_conv = register_module("norm_conv", LayerNorm(o.d_model));
  conv = register_module("conv", Convolution(o.d_model, o.conv_kernel_size, o.conv_left_context(), o.use_bias));
  norm_self_att = register_module("norm_self_att", LayerNorm(o.d_model));
  self_attn = register_module("self_attn", SelfAttention(o.d_model, o.n_heads, o.use_bias));
  norm_feed_forward2 = register_module("norm_feed_forward2", LayerNorm(o.d_model));
  feed_forward2 = register_module("feed_forward2", FeedForward(o.d_model, hidden, o.use_bias));
  norm_out = register_module("norm_out", LayerNorm(o.d_model));
}

void ConformerLayerImpl::initialise(uint64_t seed, const std::string& name) {
  for (const LayerNorm& norm : {norm_feed_forward1, norm_self_att, norm_conv, norm_feed_forward2, norm_out})
    std::const_pointer_cast<LayerNormImpl>(norm.ptr())->initialise();
  feed_forward1->initialise(seed, name + ".feed_forward1");
  feed_forward2->initialise(seed, name + ".feed_forward2");
  self_attn->initialise(seed, name + ".self_attn");
  conv->initialise(seed, name + ".conv");
}

torch::Tensor ConformerLayerImpl::forward(const torch::Tensor& x_BTD, const EncoderPass& pass) {
  torch::Tensor r =
      feed_forward_part(norm_feed_forward1, feed_forward1, x_BTD, 0.5, dropout, place + ".feed_forward1", pass);
  r = attention_part(norm_self_att, self_attn, r, dropout, dropout_att, place + ".self_attn", pass);
  r = convolution_part(norm_conv, conv, r, dropout, place + ".conv", pass);
  r = feed_forward_part(norm_feed_forward2, feed_forward2, r, 0.5, dropout, place + ".feed_forward2", pass);
  return norm_out->forward(r);
}

}  // namespace redline::models::speech
