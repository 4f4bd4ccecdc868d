// The multi-softmax decoder and the masked multi-book loss. In training only the selected (masked) positions are
// decoded: the others have no part in the loss.
#pragma once

#include <torch/torch.h>

#include "models/layers/keyed_init.h"
#include "models/speech_ssl/options.h"

namespace redline::models::speech {

class DecoderImpl : public torch::nn::Module {
 public:
  explicit DecoderImpl(const DecoderOptions& options);
  void initialise(uint64_t seed, const std::string& name);
  // [..., D] -> log-probabilities [..., V, H]: classes major, books fastest, as NeMo views its convolution's output.
  // fp32.
  torch::Tensor log_probabilities(const torch::Tensor& x) const;
  // Mean over books of the mean negative log-likelihood; x_KD are selected rows, tokens_KH their targets. K = 0 gives
  // 0.
  torch::Tensor loss(const torch::Tensor& x_KD, const torch::Tensor& tokens_KH) const;

  // The same of all rows, of which those count that are `selected_N`: for a compiled step, where the number of rows
  // must not depend on values. Sums are over rows, so rounding differs.
  torch::Tensor loss_where(const torch::Tensor& x_ND, const torch::Tensor& tokens_NH,
                           const torch::Tensor& selected_N) const;

 private:
  DecoderOptions options_;
  Affine layer_{nullptr};
};
TORCH_MODULE(Decoder);

// Positions whose share of hidden elements exceeds the threshold (strictly): bool [B, T / combine]. mask is bool or
// float, [B, T] or [B, T, F].
torch::Tensor selected_positions(const torch::Tensor& mask, int64_t combine, double threshold);

}  // namespace redline::models::speech
