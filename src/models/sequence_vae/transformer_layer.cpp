// Matrix products are row_linear's (LibTorch's, or our own in bfloat16); everything between two of them is one fused
// pass.
#include "models/sequence_vae/transformer_layer.h"

#include <cmath>

#include "models/layers/recompute.h"
#include "models/layers/row_linear.h"

namespace redline::models::sequence_vae {

NormImpl::NormImpl(int64_t width) {
  weight = register_parameter("weight", torch::ones({width}));
  bias = register_parameter("bias", torch::zeros({width}));
}

SelfAttentionImpl::SelfAttentionImpl(int64_t width) {
  in_proj_weight = register_parameter("in_proj_weight", torch::empty({3 * width, width}));
  in_proj_bias = register_parameter("in_proj_bias", torch::zeros({3 * width}));
  out_proj = register_module("out_proj", Affine(std::vector<int64_t>{width, width}, true));
}

TransformerLayerImpl::TransformerLayerImpl(const LayerOptions& layer_options, const std::string& layer_path,
                                           uint64_t seed)
    : options(layer_options), path(layer_path) {
  self_attn = register_module("self_attn", SelfAttention(options.width));
  linear1 = register_module("linear1", Affine(std::vector<int64_t>{options.hidden, options.width}, true));
  linear2 = register_module("linear2", Affine(std::vector<int64_t>{options.width, options.hidden}, true));
  norm1 = register_module("norm1", Norm(options.width));
  norm2 = register_module("norm2", Norm(options.width));
  const torch::NoGradGuard no_grad;  // torch.nn's own defaults
  xavier_uniform(self_attn->in_proj_weight, seed, path + ".self_attn.in_proj_weight");
  default_init(self_attn->out_proj->weight, self_attn->out_proj->bias, seed, path + ".self_attn.out_proj");
  self_attn->out_proj->bias.zero_();
  default_init(linear1->weight, linear1->bias, seed, path + ".linear1");
  default_init(linear2->weight, linear2->bias, seed, path + ".linear2");
}

Stream TransformerLayerImpl::forward(const Stream& in, const Rows& rows, bool causal, const Norm& next,
                                     task::Context& ctx) {
  if (!options.recompute || !ctx.training()) return forward_once(in, rows, causal, next, ctx);
  // Backward comes when the context is gone: what its draws are keyed by goes along.
  const auto ids = std::make_shared<const std::vector<int64_t>>(ctx.sample_ids());
  const bool both = options.norm_first;
  const Block block = [this, rows, causal, next, ids, both, seed = ctx.seed(),
                       step = ctx.step()](const std::vector<torch::Tensor>& inputs) {
    task::Context again(seed, step, /*training=*/true, *ids);
    const Stream out = forward_once({inputs[0], inputs[both ? 1 : 0]}, rows, causal, next, again);
    return both ? std::vector<torch::Tensor>{out.residual, out.input} : std::vector<torch::Tensor>{out.input};
  };
  const std::vector<torch::Tensor> out = recomputed(
      both ? std::vector<torch::Tensor>{in.residual, in.input} : std::vector<torch::Tensor>{in.input}, block);
  return {out[0], out[both ? 1 : 0]};
}

Stream TransformerLayerImpl::forward_once(const Stream& in, const Rows& rows, bool causal, const Norm& next,
                                          task::Context& ctx) {
  const torch::Tensor qkv = row_linear(in.input, self_attn->in_proj_weight, self_attn->in_proj_bias);
  const AttentionOptions attention{options.heads, causal, ctx.dropout_draw(options.dropout, path + ".self_attn")};
  return after_attention(in.residual, packed_self_attention(qkv, rows, attention), rows, next, ctx);
}

Stream TransformerLayerImpl::forward_last(const Stream& in, const Rows& rows, const Rows& last, const Norm& next,
                                          task::Context& ctx) {
  const int64_t width = options.width;
  std::vector<int64_t> ends(rows->offsets.begin() + 1, rows->offsets.end());
  for (int64_t& end : ends) --end;
  const torch::Tensor pick = torch::tensor(ends, torch::kInt64).to(in.input.device());
  const torch::Tensor &weight = self_attn->in_proj_weight, &bias = self_attn->in_proj_bias;
  const torch::Tensor q =
      row_linear(in.input.index_select(0, pick), weight.narrow(0, 0, width), bias.narrow(0, 0, width));
  const torch::Tensor kv = row_linear(in.input, weight.narrow(0, width, 2 * width), bias.narrow(0, width, 2 * width));
  const AttentionOptions attention{options.heads, false, ctx.dropout_draw(options.dropout, path + ".self_attn")};
  const torch::Tensor mixed = packed_last_attention(q, kv, last, rows, attention);
  return after_attention(in.residual.index_select(0, pick), mixed, last, next, ctx);
}

Stream TransformerLayerImpl::after_attention(const torch::Tensor& residual, const torch::Tensor& mixed,
                                             const Rows& rows, const Norm& next, task::Context& ctx) {
  const double p = options.dropout;
  const bool first = options.norm_first;
  const Affine& out = self_attn->out_proj;
  const ResidualNorm middle =
      residual_norm(residual, row_linear(mixed, out->weight), out->bias, rows, ctx.dropout_draw(p, path + ".dropout1"),
                    first ? norm2->weights() : norm1->weights());
  const torch::Tensor hidden = bias_activation(row_linear(middle.normed, linear1->weight), linear1->bias,
                                               options.activation, rows, ctx.dropout_draw(p, path + ".dropout"));
  const ResidualNorm end =
      residual_norm(first ? middle.residual : middle.normed, row_linear(hidden, linear2->weight), linear2->bias, rows,
                    ctx.dropout_draw(p, path + ".dropout2"), first ? next->weights() : norm2->weights());
  return {first ? end.residual : end.normed, end.normed};
}

Stream TransformerLayerImpl::forward_step(const Stream& in, Cache& cache, const Norm& next) {
  const int64_t batch = in.input.size(0), heads = options.heads, dim = options.width / heads;
  const auto parts = at::linear(in.input, self_attn->in_proj_weight, self_attn->in_proj_bias).chunk(3, 1);
  const auto grow = [&](const torch::Tensor& past, const torch::Tensor& now) {
    return past.defined() ? at::cat({past, now.unsqueeze(1)}, 1) : now.unsqueeze(1);
  };
  cache.keys = grow(cache.keys, parts[1]);
  cache.values = grow(cache.values, parts[2]);
  const auto split = [&](const torch::Tensor& x) { return x.view({batch, -1, heads, dim}).transpose(1, 2); };
  const torch::Tensor mixed =
      at::scaled_dot_product_attention(split(parts[0].contiguous()), split(cache.keys), split(cache.values))
          .transpose(1, 2)
          .reshape({batch, options.width});
  static const std::vector<int64_t> no_samples;
  task::Context quiet(0, 0, false, no_samples);
  const Rows rows = pack_rows(std::vector<int64_t>(static_cast<size_t>(batch), 1),
                              std::vector<int64_t>(static_cast<size_t>(batch), 0));
  return after_attention(in.residual, mixed, rows, next, quiet);
}

}  // namespace redline::models::sequence_vae
