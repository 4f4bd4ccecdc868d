// LayerNorm (epsilon 1e-5) and column sums over rows of floats, by one thread: what the fused layers of several tasks
// do to a tile of rows. Sums are added to what is there.
#pragma once

#include <cstdint>

namespace redline::models::rows {

void layer_norm(const float* x, int64_t num_rows, int64_t n, const float* weight, const float* bias, float* out,
                float* mean, float* rstd);
// out = residual + gradient through the norm; adds to weight_sum and bias_sum.
void layer_norm_backward(const float* grad, const float* x, const float* mean, const float* rstd, const float* weight,
                         const float* residual, int64_t num_rows, int64_t n, float* out, float* weight_sum,
                         float* bias_sum);
void column_sums(const float* x, int64_t num_rows, int64_t n, float* sum);

}  // namespace redline::models::rows
