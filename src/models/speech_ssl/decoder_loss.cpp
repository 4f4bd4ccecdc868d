#include "models/speech_ssl/decoder_loss.h"

#include <cmath>

#include "core/error.h"
#include "models/layers/row_linear.h"

namespace redline::models::speech {

DecoderImpl::DecoderImpl(const DecoderOptions& options) : options_(options) {
  auto layers = std::make_shared<torch::nn::Module>();
  const std::vector<int64_t> shape{options.num_classes * options.num_decoders, options.feat_in, 1};
  layer_ = layers->register_module("0", Affine(shape, options.use_bias));
  register_module("decoder_layers", layers);
}

void DecoderImpl::initialise(uint64_t seed, const std::string& name) {
  default_init(layer_->weight, layer_->bias, seed, name + ".decoder_layers.0");
  const std::string weight = name + ".decoder_layers.0.weight", &mode = options_.init_mode;
  const double inputs = static_cast<double>(fan_in(layer_->weight));
  if (mode == "xavier_uniform") xavier_uniform(layer_->weight, seed, weight);
  if (mode == "xavier_normal") xavier_normal(layer_->weight, seed, weight);
  if (mode == "kaiming_uniform") fill_uniform(layer_->weight, std::sqrt(6.0 / inputs), seed, weight);
  if (mode == "kaiming_normal") fill_normal(layer_->weight, std::sqrt(2.0 / inputs), seed, weight);
}

torch::Tensor DecoderImpl::log_probabilities(const torch::Tensor& x) const {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = options_.num_classes;
  shape.push_back(options_.num_decoders);
  const torch::Tensor logits = torch::linear(x, layer_->weight.squeeze(2), layer_->bias).view(shape);
  return torch::log_softmax(logits, -2, torch::kFloat32);
}

torch::Tensor DecoderImpl::loss(const torch::Tensor& x_KD, const torch::Tensor& tokens_KH) const {
  // Nothing selected: NeMo's mean over nothing is NaN. 0, still attached to the graph, with weight 0 at the caller.
  if (x_KD.size(0) == 0) return x_KD.to(torch::kFloat32).sum() * 0.0 + layer_->weight.sum() * 0.0;
  // How many frames are selected is another number in every batch: no product that is compiled for its shape.
  const torch::Tensor logits = row_linear(x_KD, layer_->weight.squeeze(2), layer_->bias)
                                   .view({x_KD.size(0), options_.num_classes, options_.num_decoders});
  torch::Tensor sum;
  for (int64_t h = 0; h < options_.num_decoders; ++h) {
    const torch::Tensor log_p = torch::log_softmax(logits.select(2, h), 1, torch::kFloat32);
    const torch::Tensor book = torch::nll_loss(log_p, tokens_KH.select(1, h));
    sum = h == 0 ? book : sum + book;
  }
  return sum / static_cast<double>(options_.num_decoders);
}

torch::Tensor DecoderImpl::loss_where(const torch::Tensor& x_ND, const torch::Tensor& tokens_NH,
                                      const torch::Tensor& selected_N) const {
  const torch::Tensor logits = torch::linear(x_ND, layer_->weight.squeeze(2), layer_->bias)
                                   .view({x_ND.size(0), options_.num_classes, options_.num_decoders});
  const torch::Tensor log_p = torch::log_softmax(logits, 1, torch::kFloat32);
  const torch::Tensor right = log_p.gather(1, tokens_NH.unsqueeze(1)).squeeze(1).mean(1);
  const torch::Tensor counted = selected_N.to(torch::kFloat32);
  return -(right * counted).sum() / counted.sum().clamp_min(1.0);
}

torch::Tensor selected_positions(const torch::Tensor& mask, int64_t combine, double threshold) {
  const int64_t batch = mask.size(0), time = mask.size(1);
  if (time % combine != 0)
    throw DataError("the mask has " + std::to_string(time) + " frames, which is not a multiple of the " +
                    std::to_string(combine) + " that one encoder position covers.");
  return mask.to(torch::kFloat32).reshape({batch, time / combine, -1}).mean(-1) > threshold;
}

}  // namespace redline::models::speech
