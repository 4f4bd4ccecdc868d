// Elementwise steps of a block over rows of channels, several per pass; sums are added to what is there. `factors` is
// stochastic depth: what each picture's rows are multiplied by; null = nothing is dropped.
#pragma once

#include <cstdint>

namespace redline::models::convnext::rows {

struct Factors {
  const float* of_image = nullptr;
  int64_t rows_per_image = 1, first_row = 0;
};

// hat = (x - mean) / sqrt(variance + 1e-6), without weight and bias; x and hat may be the same.
void normalise(const float* x, int64_t num_rows, int64_t n, float* hat, float* rstd);
// out = hat * weight + bias; both may be the same.
void affine(const float* hat, const float* weight, const float* bias, int64_t num_rows, int64_t n, float* out);
// The same into panels of 32 columns (layers/panel_gemm.h), each of `panel_rows` rows, `out` pointing at the first.
void affine_to_panels(const float* hat, const float* weight, const float* bias, int64_t num_rows, int64_t n,
                      int64_t panel_rows, float* out);
// From grad at hat * weight + bias: out = gradient at x; adds to weight_sum and bias_sum. out and grad may be the same.
void norm_backward(const float* grad, const float* hat, const float* rstd, const float* weight, int64_t num_rows,
                   int64_t n, float* out, float* weight_sum, float* bias_sum);

// h += bias, in place; out = gelu(h).
void bias_gelu(float* h, const float* bias, int64_t num_rows, int64_t n, float* out);
// From grad at gelu(h): grad becomes the gradient at h, and is added to sum; activation = gelu(h) again.
void gelu_backward(float* grad, const float* h, int64_t num_rows, int64_t n, float* activation, float* sum);

// out = r + factor * scale * (y + bias); scale (layer scale) may be null.
void residual(const float* r, const float* y, const float* bias, const float* scale, const Factors& factors,
              int64_t num_rows, int64_t n, float* out);
// The same backward: scaled = scale * factor * grad, sum += factor * grad, and kept = factor * grad unless it is null.
void residual_backward(const float* grad, const float* scale, const Factors& factors, int64_t num_rows, int64_t n,
                       float* kept, float* scaled, float* sum);
// kept = factor * grad in panels, sum += the same.
void kept_to_panels(const float* grad, const Factors& factors, int64_t num_rows, int64_t n, int64_t panel_rows,
                    float* kept, float* sum);

// p *= scale, in place; returns the sum of p * w from before.
float scale_and_dot(float* p, const float* w, float scale, int64_t n);

void add_bias(float* x, const float* bias, int64_t num_rows, int64_t n);
void add_column_sums(const float* x, int64_t num_rows, int64_t n, float* sum);

}  // namespace redline::models::convnext::rows
