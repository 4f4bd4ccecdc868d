// EncDecDenoiseMaskedTokenPredModel: all parts under NeMo's names, and one forward pass.
#pragma once

#include <torch/torch.h>

#include "models/speech_ssl/block_masking.h"
#include "models/speech_ssl/decoder_loss.h"
#include "models/speech_ssl/encoder.h"
#include "models/speech_ssl/preprocessor.h"
#include "models/speech_ssl/quantizer.h"
#include "task/batch.h"
#include "task/compiled_part.h"

namespace redline::models::speech {

class ModelImpl : public torch::nn::Module {
 public:
  ModelImpl(const ModelOptions& options, uint64_t seed);

  struct Pass {
    Features clean, noisy;  // clean.x may be undefined when tokens are not wanted
    Encoded encoded;
    torch::Tensor tokens_BTH;
    torch::Tensor selected_BT;  // bool
  };
  // Hides frames and predicts their tokens; named outputs go to ctx.
  Pass forward(const task::Batch& batch, task::Context& ctx);
  // The same in two: what looks at values (features, masks, tokens), and the rest as a pure function of it (loss and
  // metrics), for a compiled step.
  task::Tensors outside(const task::Batch& batch, task::Context& ctx);
  task::Loss traced_loss(const task::Tensors& in, task::Context& ctx);
  // Encoder output of the unmasked signal.
  Encoded embed(const task::Batch& batch, task::Context& ctx);

  Decoder decoder() const { return decoder_; }
  Preprocessor preprocessor() const { return preprocessor_; }
  const ModelOptions& options() const { return options_; }

 private:
  std::pair<Features, Features> features(const task::Batch& batch, task::Context& ctx);
  torch::Tensor given_mask(const task::Batch& batch, int64_t features, int64_t time) const;
  void record(const Pass& pass, task::Context& ctx) const;
  void record_outside(const Features& clean, const Features& noisy, const torch::Tensor& lengths,
                      const task::Tensors& in, task::Context& ctx) const;

  ModelOptions options_;
  Preprocessor preprocessor_{nullptr};
  BlockMasking mask_processor_{nullptr};
  Quantizer quantizer_{nullptr};
  Encoder encoder_{nullptr};
  Decoder decoder_{nullptr};
};
TORCH_MODULE(Model);

}  // namespace redline::models::speech
