// The plain path: convolutions of LibTorch and a time mask before every layer, as NeMo's MaskedConvSequential.
#include "models/speech_ssl/subsampling.h"

#include "models/speech_ssl/subsampling_kernels.h"

namespace redline::models::speech {

namespace {

torch::Tensor time_mask(const torch::Tensor& lengths_B, int64_t time, const torch::Tensor& like) {
  const torch::Tensor steps = torch::arange(time, torch::TensorOptions().dtype(torch::kInt64).device(like.device()));
  return (steps.unsqueeze(0) < lengths_B.to(like.device()).unsqueeze(1)).to(like.scalar_type()).view({-1, 1, time, 1});
}

// subsampling::strided_length of each.
torch::Tensor halved(const torch::Tensor& lengths_B, int64_t pad_left) {
  return (lengths_B + (pad_left - 2)).div(2, "trunc") + (lengths_B + pad_left).ge(2).to(lengths_B.scalar_type());
}

}  // namespace

SubsamplingImpl::SubsamplingImpl(const EncoderOptions& options)
    : channels_(options.channels()), pad_left_(options.subsampling_pad()) {
  auto conv = std::make_shared<torch::nn::Module>();
  stem_ = conv->register_module("0", Affine(std::vector<int64_t>{channels_, 1, 3, 3}, true));
  out_features_ = subsampling::strided_length(options.feat_in, pad_left_);
  for (int64_t stage = 1; stage < options.num_stages(); ++stage) {
    const int64_t index = 3 * stage - 1;  // stem and ReLU are 0 and 1, then (depthwise, pointwise, ReLU)
    Stage s;
    s.depthwise = conv->register_module(std::to_string(index), Affine(std::vector<int64_t>{channels_, 1, 3, 3}, true));
    s.pointwise = conv->register_module(std::to_string(index + 1),
                                        Affine(std::vector<int64_t>{channels_, channels_, 1, 1}, true));
    stages_.push_back(s);
    out_features_ = subsampling::strided_length(out_features_, pad_left_);
  }
  register_module("conv", conv);
  out_ = register_module("out", Affine(std::vector<int64_t>{options.d_model, channels_ * out_features_}, true));
}

void SubsamplingImpl::initialise(uint64_t seed, const std::string& name) {
  default_init(stem_->weight, stem_->bias, seed, name + ".conv.0");
  for (size_t i = 0; i < stages_.size(); ++i) {
    default_init(stages_[i].depthwise->weight, stages_[i].depthwise->bias, seed,
                 name + ".conv." + std::to_string(3 * i + 2));
    default_init(stages_[i].pointwise->weight, stages_[i].pointwise->bias, seed,
                 name + ".conv." + std::to_string(3 * i + 3));
  }
  default_init(out_->weight, out_->bias, seed, name + ".out");
}

Subsampled SubsamplingImpl::forward(const torch::Tensor& x_BTF, const torch::Tensor& lengths_B, bool fused) {
  const bool plain_input = x_BTF.device().is_cpu() && x_BTF.scalar_type() == torch::kFloat32 && !x_BTF.requires_grad();
  if (!fused || !plain_input || stem_->weight.scalar_type() != torch::kFloat32) return plain(x_BTF, lengths_B);
  return {fused_subsampling(*this, x_BTF, lengths_B), shortened(lengths_B)};
}

int64_t SubsamplingImpl::shortened(int64_t time) const {
  for (size_t stage = 0; stage <= stages_.size(); ++stage) time = subsampling::strided_length(time, pad_left_);
  return time;
}

torch::Tensor SubsamplingImpl::shortened(torch::Tensor lengths_B) const {
  for (size_t stage = 0; stage <= stages_.size(); ++stage) lengths_B = halved(lengths_B, pad_left_);
  return lengths_B;
}

Subsampled SubsamplingImpl::plain(const torch::Tensor& x_BTF, const torch::Tensor& lengths_B) {
  torch::Tensor x = x_BTF.unsqueeze(1), lengths = lengths_B;
  torch::Tensor mask = time_mask(lengths, x.size(2), x);
  const auto strided = [&](const Affine& layer, int64_t groups) {
    x = torch::constant_pad_nd(x * mask, {pad_left_, 1, pad_left_, 1});
    x = torch::conv2d(x, layer->weight, layer->bias, /*stride=*/at::IntArrayRef{2}, /*padding=*/at::IntArrayRef{0},
                      /*dilation=*/at::IntArrayRef{1}, groups);
    lengths = halved(lengths, pad_left_);
    mask = time_mask(lengths, x.size(2), x);
  };
  strided(stem_, 1);
  x = torch::relu(x * mask);
  for (const Stage& stage : stages_) {
    strided(stage.depthwise, channels_);
    x = torch::relu(torch::conv2d(x * mask, stage.pointwise->weight, stage.pointwise->bias) * mask);
  }
  x = x * mask;
  const torch::Tensor flat = x.transpose(1, 2).reshape({x.size(0), x.size(2), -1});
  return {torch::linear(flat, out_->weight, out_->bias), lengths};
}

}  // namespace redline::models::speech
