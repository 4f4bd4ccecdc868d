// The dw_striding sub-sampling: a strided stem convolution and strided depthwise-separable ones, each halving time and
// frequency, then a linear layer to d_model. NeMo's names: conv.{0,2,3,5,6,...} and out.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "models/layers/keyed_init.h"
#include "models/speech_ssl/options.h"

namespace redline::models::speech {

struct Subsampled {
  torch::Tensor x_BTD;
  torch::Tensor lengths_B;  // int64, on the CPU
};

class SubsamplingImpl : public torch::nn::Module {
 public:
  explicit SubsamplingImpl(const EncoderOptions& options);
  void initialise(uint64_t seed, const std::string& name);
  // The fused path needs a float32 CPU input without gradient (mask embedding frozen); otherwise the plain one runs.
  Subsampled forward(const torch::Tensor& x_BTF, const torch::Tensor& lengths_B, bool fused);
  Subsampled plain(const torch::Tensor& x_BTF, const torch::Tensor& lengths_B);

  int64_t shortened(int64_t time) const;  // frames that so many become
  torch::Tensor shortened(torch::Tensor lengths_B) const;

  struct Stage {
    Affine depthwise{nullptr}, pointwise{nullptr};
  };
  Affine stem() const { return stem_; }
  const std::vector<Stage>& stages() const { return stages_; }
  Affine out() const { return out_; }
  int64_t pad_left() const { return pad_left_; }

 private:
  int64_t channels_, pad_left_, out_features_;
  Affine stem_{nullptr}, out_{nullptr};
  std::vector<Stage> stages_;
};
TORCH_MODULE(Subsampling);

// subsampling_fused.cpp
torch::Tensor fused_subsampling(const SubsamplingImpl& module, const torch::Tensor& x_BTF,
                                const torch::Tensor& lengths_B);

}  // namespace redline::models::speech
