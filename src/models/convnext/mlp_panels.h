// A block from LayerNorm to the residual over rows of channels, float, on products in panels (layers/panel_gemm.h):
// bias and GELU are applied to a product's tile while it is in registers, so the wide layer is written once in forward
// (what backward keeps) and once in backward (what the weight gradients need).
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "models/convnext/row_kernels.h"
#include "models/layers/row_kernels.h"

namespace redline::models::convnext::panel_mlp {

struct Weights {
  int64_t dim, width;
  const float *norm_weight, *norm_bias;
  const float *weight1, *bias1, *weight2, *bias2;  // [width, dim], [width], [dim, width], [dim]
  const float* scale;                              // [dim]; null without layer scale
};

struct Forward {
  int64_t num_rows;
  const float* x;         // the block's input, the residual
  rows::Factors factors;  // of row 0
  float *hat, *rstd;      // in: the depthwise layer's output; out: normalised, with the deviations
  float* hidden;          // hidden_floats() pre-activations in panels; null: not kept
  float* out;
};
int64_t hidden_floats(int64_t num_rows, int64_t width);
void forward(const Weights& weights, const Forward& job);

struct Backward {
  int64_t num_rows;
  const float* grad;
  rows::Factors factors;
  const float *hat, *rstd, *hidden;
  float* grad_in;                // at the depthwise layer's output
  float* grad_weight1;           // written
  float* grad_weight2;           // written: of the branch before layer scale
  ColumnSums<float>* norm_sums;  // lines: norm weight, norm bias, and the branch's gradient (second bias before scale)
};
// Returns the first bias' gradient.
torch::Tensor backward(const Weights& weights, const Backward& job);

}  // namespace redline::models::convnext::panel_mlp
