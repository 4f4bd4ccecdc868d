// dropout(activation(u + bias)): the middle of a feed-forward block in one pass forward and one backward. Only u is
// kept; the mask and the activation's inside are made again.
#pragma once

#include <torch/torch.h>

#include "models/layers/packed_rows.h"
#include "models/layers/row_dropout.h"

namespace redline::models {

enum class Activation { Relu, Gelu };  // Gelu is the exact one, x times the normal distribution function

// u [N, C] (may be in lower precision; the result is at least float32), bias [C].
torch::Tensor bias_activation(const torch::Tensor& u, const torch::Tensor& bias, Activation activation,
                              const Rows& rows, const DropoutDraw& dropout);
torch::Tensor bias_activation_plain(const torch::Tensor& u, const torch::Tensor& bias, Activation activation,
                                    const Rows& rows, const DropoutDraw& dropout);

}  // namespace redline::models
