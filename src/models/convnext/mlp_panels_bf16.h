// mlp_panels.h's block with products of bfloat16 (layers/panel_gemm_bf16.h): what backward keeps of the rows is
// rounded, half as large; statistics, sums, bias, GELU and the residual are float.
#pragma once

#include "models/convnext/mlp_panels.h"

namespace redline::models::convnext::panel_mlp {

struct Bf16Forward {
  torch::Tensor weight1, weight2;  // the parameters behind Weights' pointers
  int64_t num_rows;
  const float* x;         // the block's input, the residual
  rows::Factors factors;  // of row 0
  const float* taps_out;  // the depthwise layer's output
  uint16_t* hat;          // [num_rows, dim] normalised, rounded; null: neither this nor `hidden` is kept
  float* rstd;            // the rows' deviations
  uint16_t* hidden;       // [num_rows, hidden_line()] pre-activations, rounded
  float* out;
};
int64_t hidden_line(int64_t width);  // filled up to whole panels
void forward(const Weights& weights, const Bf16Forward& job);

struct Bf16Backward {
  torch::Tensor weight1;
  int64_t num_rows;
  const float* grad;
  rows::Factors factors;
  const uint16_t* hat;
  const float* rstd;
  const uint16_t* hidden;
  float* grad_in;                // at the depthwise layer's output
  float* grad_weight1;           // written
  float* grad_weight2;           // written: of the branch before layer scale
  ColumnSums<float>* norm_sums;  // lines: norm weight, norm bias, and the branch's gradient (second bias before scale)
};
// Returns the first bias' gradient.
torch::Tensor backward(const Weights& weights, const Bf16Backward& job);

}  // namespace redline::models::convnext::panel_mlp
