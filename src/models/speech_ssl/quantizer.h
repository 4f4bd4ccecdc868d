// Random-projection quantizer (BEST-RQ, arXiv 2202.01855): frames -> frozen random projection -> nearest code. NeMo's
// l2 distance between unit vectors and the cosine give the same index, so both are one argmax of a dot product; NeMo's
// literal broadcast would hold B*T/8*books*16*8192 doubles.
#pragma once

#include <torch/torch.h>

#include "models/layers/keyed_init.h"
#include "models/speech_ssl/options.h"

namespace redline::models::speech {

class QuantizerImpl : public torch::nn::Module {
 public:
  explicit QuantizerImpl(const QuantizerOptions& options);
  void initialise(uint64_t seed, const std::string& name);
  // x_BTF with T a multiple of combine_time_steps (DataError otherwise) -> tokens [B, T / combine, books], int64. fp32,
  // no autograd.
  torch::Tensor forward(const torch::Tensor& x_BTF, bool fused);

 private:
  QuantizerOptions options_;
  Affine proj_{nullptr};
  torch::Tensor codebooks_;  // [books, classes, code_dim], float64, unit vectors
};
TORCH_MODULE(Quantizer);

// Index of the largest dot product of each row of x [N, D] (unit float32) with the rows of codes [V, D] (float64). Ties
// and near ties are decided in double precision, the first one wins, as in the reference.
torch::Tensor nearest_code_plain(const torch::Tensor& x_ND, const torch::Tensor& codes_VD);
torch::Tensor nearest_code_fast(const torch::Tensor& x_ND, const torch::Tensor& codes_VD);

}  // namespace redline::models::speech
