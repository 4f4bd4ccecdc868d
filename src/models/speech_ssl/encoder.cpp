#include "models/speech_ssl/encoder.h"

#include <cmath>

#include "task/keyed_random.h"

namespace redline::models::speech {

EncoderImpl::EncoderImpl(const EncoderOptions& options, const BlockMasking& post_conv_masking)
    : options_(options), drop_probabilities_(options.layer_drop_probabilities()) {
  pre_encode_ = Subsampling(options);
  if (post_conv_masking.is_empty()) {
    register_module("pre_encode", pre_encode_);
  } else {
    wrapper_ = std::make_shared<torch::nn::Module>();
    wrapper_->register_module("pre_encode", pre_encode_);
    wrapper_->register_module("masking", post_conv_masking);
    register_module("pre_encode", wrapper_);
  }
  auto list = std::make_shared<torch::nn::Module>();
  for (int64_t i = 0; i < options.n_layers; ++i)
    layers_.push_back(list->register_module(std::to_string(i), ConformerLayer(options, i)));
  register_module("layers", list);
  if (options.feat_out > 0 && options.feat_out != options.d_model)
    out_proj_ = register_module("out_proj", Affine(std::vector<int64_t>{options.feat_out, options.d_model}, true));
}

void EncoderImpl::initialise(uint64_t seed, const std::string& name) {
  pre_encode_->initialise(seed, name + (wrapper_ ? ".pre_encode.pre_encode" : ".pre_encode"));
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i]->initialise(seed, name + ".layers." + std::to_string(i));
  if (!out_proj_.is_empty()) default_init(out_proj_->weight, out_proj_->bias, seed, name + ".out_proj");
}

Subsampled EncoderImpl::subsample(const torch::Tensor& x_BTF, const torch::Tensor& lengths_B, bool fused) {
  return pre_encode_->forward(x_BTF, lengths_B, fused);
}

// Rows +(T-1) ... -(T-1); sine on even, cosine on odd columns (NeMo's RelPositionalEncoding.create_pe, in float32 as
// there).
torch::Tensor EncoderImpl::positions(int64_t time, const torch::Tensor& like) {
  const auto options = torch::TensorOptions().dtype(torch::kFloat32).device(like.device());
  if (!table_.defined() || table_.size(0) < 2 * time - 1 || table_.device() != like.device()) {
    const torch::NoGradGuard no_grad;
    const int64_t dim = options_.d_model;
    const torch::Tensor rows = torch::arange(time - 1, -time, -1, options).unsqueeze(1);
    const torch::Tensor rates =
        torch::exp(torch::arange(0, dim, 2, options) * -(std::log(10000.0) / static_cast<double>(dim)));
    table_ = torch::zeros({2 * time - 1, dim}, options);
    table_.slice(1, 0, dim, 2).copy_(torch::sin(rows * rates));
    table_.slice(1, 1, dim, 2).copy_(torch::cos(rows * rates.slice(0, 0, dim / 2)));
  }
  const int64_t centre = table_.size(0) / 2;
  return table_.slice(0, centre - time + 1, centre + time);
}

// One draw per (relative position, column) and step, shared by all clips. Keyed by the position itself, not by its row,
// so that micro-batches of other lengths draw the same.
torch::Tensor EncoderImpl::dropped_positions(torch::Tensor positions_PD, const task::Context& ctx) const {
  const double p = options_.dropout_emb;
  if (!ctx.training() || p == 0.0) return positions_PD;
  constexpr int64_t kCentre = int64_t{1} << 21;
  const int64_t rows = positions_PD.size(0), dim = positions_PD.size(1), stride = (dim + 7) / 8 * 8;
  torch::Tensor draws = torch::empty({rows, dim});
  const PhiloxKey key = task::operation_key(ctx.seed(), ctx.step(), "position_embedding");
  for (int64_t row = 0; row < rows; ++row)
    task::uniform_run(key, ~uint64_t{0}, static_cast<uint64_t>((kCentre + rows / 2 - row) * stride), dim,
                      draws.mutable_data_ptr<float>() + row * dim, task::best_random_path());
  return positions_PD * (draws.ge(p).to(torch::kFloat32) / (1.0 - p)).to(positions_PD.device());
}

EncoderPass EncoderImpl::pass_for(const torch::Tensor& lengths_B, int64_t time, const torch::Tensor& like,
                                  task::Context& ctx) {
  EncoderPass pass;
  const torch::Tensor lengths = lengths_B.to(torch::kCPU).contiguous();
  pass.lengths.assign(lengths.const_data_ptr<int64_t>(), lengths.const_data_ptr<int64_t>() + lengths.numel());
  for (int64_t& length : pass.lengths) length = std::min(length, time);
  pass.valid_BT = (torch::arange(time).unsqueeze(0) < lengths.unsqueeze(1)).to(like.device());
  pass.positions_PD = dropped_positions(positions(time, like), ctx);
  pass.left_context = options_.attention_left();
  pass.right_context = options_.attention_right();
  pass.chunked = options_.att_context_style == "chunked_limited";
  pass.ctx = &ctx;
  return pass;
}

bool EncoderImpl::drops_layer(size_t layer, const task::Context& ctx) const {
  const double p = drop_probabilities_[layer];
  return ctx.training() && p > 0.0 && ctx.stream(-1, "stochastic_depth." + std::to_string(layer)).uniform() < p;
}

Encoded EncoderImpl::encode(const Subsampled& input, task::Context& ctx, bool fused) {
  torch::Tensor x = input.x_BTD;
  EncoderPass pass = pass_for(input.lengths_B, x.size(1), x, ctx);
  pass.fused = fused;
  if (options_.xscaling) x = x * std::sqrt(static_cast<double>(options_.d_model));
  x = ctx.dropout(x, options_.dropout_pre_encoder, "pre_encoder");
  for (size_t i = 0; i < layers_.size(); ++i) {
    const torch::Tensor before = x;
    x = layers_[i]->forward(x, pass);
    const double p = drop_probabilities_[i];
    if (!ctx.training() || p == 0.0) continue;
    // The dropped layer still ran (its BatchNorm counts the batch) and its weights get zero gradients, as in NeMo.
    x = drops_layer(i, ctx) ? x * 0.0 + before : (x - before) / (1.0 - p) + before;
  }
  if (!out_proj_.is_empty()) x = torch::linear(x, out_proj_->weight, out_proj_->bias);
  return {x, input.lengths_B};
}

EncoderImpl::Outside EncoderImpl::outside_layers(const torch::Tensor& lengths_B, int64_t time,
                                                 const torch::Tensor& like, task::Context& ctx) {
  const EncoderPass pass = pass_for(lengths_B, time, like, ctx);
  std::vector<float> kept;
  for (size_t i = 0; i < layers_.size(); ++i) kept.push_back(drops_layer(i, ctx) ? 0.0f : 1.0f);
  return {pass.positions_PD, pass.valid_BT, pass.hidden_mask(time), torch::tensor(kept).to(like.device())};
}

torch::Tensor EncoderImpl::encode_traced(const torch::Tensor& x_BTD, const Outside& outside, task::Context& ctx) {
  EncoderPass pass;
  pass.valid_BT = outside.valid_BT;
  pass.positions_PD = outside.positions_PD;
  pass.hidden_BTT = outside.hidden_BTT;
  pass.ctx = &ctx;
  torch::Tensor x = options_.xscaling ? x_BTD * std::sqrt(static_cast<double>(options_.d_model)) : x_BTD;
  x = ctx.dropout(x, options_.dropout_pre_encoder, "pre_encoder");
  for (size_t i = 0; i < layers_.size(); ++i) {
    const torch::Tensor before = x;
    x = layers_[i]->forward(x, pass);
    if (const double p = drop_probabilities_[i]; p > 0.0)
      x = (x - before) * (outside.kept_L[static_cast<int64_t>(i)] / (1.0 - p)) + before;
  }
  return out_proj_.is_empty() ? x : torch::linear(x, out_proj_->weight, out_proj_->bias);
}

}  // namespace redline::models::speech
