// Mel features of a batch: NeMo's AudioToMelSpectrogramPreprocessor. Always fp32, never differentiated.
//
// Features are time-major [B, T, F] everywhere in this room (sub-sampling and quantizer read rows of frames); NeMo's
// [B, F, T] appears only in named outputs and in the mask it hands over.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "models/speech_ssl/mel_kernel.h"
#include "models/speech_ssl/options.h"
#include "task/context.h"

namespace redline::models::speech {

struct Features {
  torch::Tensor x_BTF;      // zero (pad_value) past each length; T is a multiple of pad_to
  torch::Tensor lengths_B;  // int64, on the CPU
};

// One of the signals of a step: clean or noisy.
struct Signal {
  torch::Tensor audio_BL;   // float32
  torch::Tensor lengths_B;  // int64, in samples
  std::string name;         // of its dither draws
};

class PreprocessorImpl : public torch::nn::Module {
 public:
  explicit PreprocessorImpl(const PreprocessorOptions& options);

  // All signals in one batched call; the features of signal i are rows [i B, (i+1) B). Dither is added only when ctx is
  // training.
  std::vector<Features> forward(const std::vector<Signal>& signals, task::Context& ctx, bool fused);
  // Frames of a signal with that many samples; and how many a batch is padded to.
  int64_t num_frames(int64_t samples) const;
  int64_t padded_frames(int64_t longest_samples) const;
  bool fast_path_available() const;
  MelKernel make_kernel() const;
  Features reference(const torch::Tensor& audio_BL, const torch::Tensor& lengths_B) const;

 private:
  Features fast(const std::vector<Signal>& signals, task::Context& ctx) const;

  PreprocessorOptions options_;
  struct FeaturizerImpl : torch::nn::Module {
    torch::Tensor window, fb;
  };
  std::shared_ptr<FeaturizerImpl> featurizer_;
};
TORCH_MODULE(Preprocessor);

}  // namespace redline::models::speech
