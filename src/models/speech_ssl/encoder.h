// The Fast-Conformer encoder: sub-sampling, scaling, relative positions, layers with stochastic depth, and the optional
// projection.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "models/speech_ssl/block_masking.h"
#include "models/speech_ssl/conformer.h"
#include "models/speech_ssl/subsampling.h"

namespace redline::models::speech {

struct Encoded {
  torch::Tensor x_BTD;
  torch::Tensor lengths_B;  // int64, on the CPU
};

class EncoderImpl : public torch::nn::Module {
 public:
  // With post_conv NeMo wraps the sub-sampling, which moves its names to pre_encode.pre_encode and pre_encode.masking.
  EncoderImpl(const EncoderOptions& options, const BlockMasking& post_conv_masking);
  void initialise(uint64_t seed, const std::string& name);

  Subsampled subsample(const torch::Tensor& x_BTF, const torch::Tensor& lengths_B, bool fused);
  Encoded encode(const Subsampled& input, task::Context& ctx, bool fused);
  // encode() as a pure function of tensors, for a compiled step: what depends on lengths and on draws of the host comes
  // from outside_layers(), made for so many positions.
  struct Outside {
    torch::Tensor positions_PD, valid_BT, hidden_BTT;
    torch::Tensor kept_L;  // 1 or 0 for each layer: stochastic depth
  };
  Outside outside_layers(const torch::Tensor& lengths_B, int64_t time, const torch::Tensor& like, task::Context& ctx);
  torch::Tensor encode_traced(const torch::Tensor& x_BTD, const Outside& outside, task::Context& ctx);
  Subsampling pre_encode() const { return pre_encode_; }
  std::shared_ptr<torch::nn::Module> wrapper() const { return wrapper_; }

 private:
  torch::Tensor positions(int64_t time, const torch::Tensor& like);
  bool drops_layer(size_t layer, const task::Context& ctx) const;
  EncoderPass pass_for(const torch::Tensor& lengths_B, int64_t time, const torch::Tensor& like, task::Context& ctx);
  torch::Tensor dropped_positions(torch::Tensor positions_PD, const task::Context& ctx) const;

  EncoderOptions options_;
  Subsampling pre_encode_{nullptr};
  std::shared_ptr<torch::nn::Module> wrapper_;  // null with pre_conv
  std::vector<ConformerLayer> layers_;
  Affine out_proj_{nullptr};
  std::vector<double> drop_probabilities_;
  torch::Tensor table_;  // of the longest pass so far
};
TORCH_MODULE(Encoder);

}  // namespace redline::models::speech
