// The step between two linear layers of a Transformer: residual + dropout(h + bias), then layer norm of the sum, in one
// pass over the rows forward and one backward. LibTorch's separate operators read and write the rows seven times.
#pragma once

#include <torch/torch.h>

#include "models/layers/packed_rows.h"
#include "models/layers/row_dropout.h"

namespace redline::models {

struct ResidualNorm {
  torch::Tensor residual;  // x + dropout(h + bias)
  torch::Tensor normed;    // LayerNorm(residual) * weight + shift
};
struct NormWeights {
  torch::Tensor weight, shift;
  double epsilon = 1e-5;
};

// x, h [N, C]; bias [C]. Each result may go unused. h may be in lower precision (autocast); sums are in x's type.
ResidualNorm residual_norm(const torch::Tensor& x, const torch::Tensor& h, const torch::Tensor& bias, const Rows& rows,
                           const DropoutDraw& dropout, const NormWeights& norm);
// The same by LibTorch's operators, for the tests and for other devices.
ResidualNorm residual_norm_plain(const torch::Tensor& x, const torch::Tensor& h, const torch::Tensor& bias,
                                 const Rows& rows, const DropoutDraw& dropout, const NormWeights& norm);

}  // namespace redline::models
