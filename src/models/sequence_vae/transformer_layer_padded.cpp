// A Transformer layer as plain operators over padded sequences: see padded.h. Draws are keyed by position, so those of
// one position are a row of the whole tensor's.
#include <cmath>

#include "models/sequence_vae/transformer_layer.h"

namespace redline::models::sequence_vae {

namespace {

torch::Tensor in_full(const torch::Tensor& x) { return x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32); }

// [B, T, C] -> [B, 1, C]
torch::Tensor row_of(const torch::Tensor& x_BTC, const torch::Tensor& last_B) {
  return x_BTC.gather(1, last_B.view({-1, 1, 1}).expand({-1, 1, x_BTC.size(2)}));
}

struct PaddedDropout {
  task::Context& ctx;
  double p;
  const torch::Tensor& last_B;  // undefined: all positions
  int64_t time;

  // x is [B, T, C], or [B, 1, C] of the last positions.
  torch::Tensor rows(const torch::Tensor& x, const std::string& place) const {
    if (!last_B.defined() || p == 0.0) return ctx.dropout(x, p, place);
    const torch::Tensor kept = ctx.dropout(torch::ones({x.size(0), time, x.size(2)}, x.options()), p, place);
    return x * row_of(kept, last_B);
  }
  // weights are [B, H, T, T], or [B, H, 1, T].
  torch::Tensor attention(const torch::Tensor& weights, const std::string& place) const {
    if (!last_B.defined() || p == 0.0) return ctx.dropout(weights, p, place, {2, 3});
    const int64_t heads = weights.size(1);
    const torch::Tensor kept =
        ctx.dropout(torch::ones({weights.size(0), heads, time, time}, weights.options()), p, place, {2, 3});
    return weights * kept.gather(2, last_B.view({-1, 1, 1, 1}).expand({-1, heads, 1, time}));
  }
};

}  // namespace

Stream TransformerLayerImpl::forward_padded(const Stream& in, const torch::Tensor& hidden, const torch::Tensor& last_B,
                                            const Norm& next, task::Context& ctx) {
  const int64_t batch = in.input.size(0), time = in.input.size(1), heads = options.heads, width = options.width;
  const PaddedDropout dropout{ctx, options.dropout, last_B, time};
  const bool first = options.norm_first, one = last_B.defined();
  const torch::Tensor residual = one ? row_of(in.residual, last_B) : in.residual;
  const auto split = [&](const torch::Tensor& x) {
    return in_full(x).view({batch, -1, heads, width / heads}).transpose(1, 2);
  };
  const torch::Tensor &weight = self_attn->in_proj_weight, &bias = self_attn->in_proj_bias;
  torch::Tensor q, k, v;
  if (one) {
    q = at::linear(row_of(in.input, last_B), weight.narrow(0, 0, width), bias.narrow(0, 0, width));
    const auto kv =
        at::linear(in.input, weight.narrow(0, width, 2 * width), bias.narrow(0, width, 2 * width)).chunk(2, 2);
    k = kv[0], v = kv[1];
  } else {
    const auto qkv = at::linear(in.input, weight, bias).chunk(3, 2);
    q = qkv[0], k = qkv[1], v = qkv[2];
  }
  const torch::Tensor scores =
      split(q).matmul(split(k).transpose(2, 3)) / std::sqrt(static_cast<double>(width / heads));
  const torch::Tensor weights =
      dropout.attention(in_full(scores).masked_fill(hidden, -INFINITY).softmax(-1), path + ".self_attn");
  const torch::Tensor mixed = weights.matmul(split(v)).transpose(1, 2).reshape({batch, -1, width});

  const auto norm_of = [&](const torch::Tensor& x, const Norm& norm) {
    return at::layer_norm(x, {width}, norm->weight, norm->bias);
  };
  const Affine& out = self_attn->out_proj;
  const torch::Tensor after =
      residual + dropout.rows(in_full(at::linear(mixed, out->weight)) + out->bias, path + ".dropout1");
  const torch::Tensor normed = norm_of(after, first ? norm2 : norm1);
  const torch::Tensor u = in_full(at::linear(normed, linear1->weight)) + linear1->bias;
  const torch::Tensor active =
      dropout.rows(options.activation == Activation::Relu ? at::relu(u) : at::gelu(u), path + ".dropout");
  const torch::Tensor end =
      (first ? after : normed) +
      dropout.rows(in_full(at::linear(active, linear2->weight)) + linear2->bias, path + ".dropout2");
  const torch::Tensor end_normed = norm_of(end, first ? next : norm2);
  return {first ? end : end_normed, end_normed};
}

}  // namespace redline::models::sequence_vae
