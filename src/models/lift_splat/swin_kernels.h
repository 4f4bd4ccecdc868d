// Kernels of the fused Swin parts: GELU over rows, and the attention of one window and head.
#pragma once

#include <cstdint>
#include <vector>

namespace redline::models::lift_splat::kernels {

// h += bias, in place (bias may be null); out = gelu(h).
void bias_gelu(float* h, const float* bias, int64_t num_rows, int64_t n, float* out);
// From the gradient at gelu(h): grad becomes the gradient at h; activation = gelu(h) again.
void gelu_backward(float* grad, const float* h, int64_t count, float* activation);

// Attention of one head of one window. Rows of q, k, v are `stride` floats apart, rows of out `out_stride`. `bias` is
// [n, padded] with n = window^2 places and padded = n rounded up to whole vectors; `regions` [n], or null when all
// places see each other. head_dim is a multiple of 8.
struct HeadShape {
  int64_t n = 0, padded = 0, head_dim = 0, stride = 0, out_stride = 0;
  float scale = 1.0f;
};
struct HeadScratch {
  explicit HeadScratch(const HeadShape& shape);
  std::vector<float> transposed, weights, grads;  // [head_dim, padded], [n, padded] twice
};
void head_forward(const HeadShape& shape, const float* q, const float* k, const float* v, const float* bias,
                  const uint8_t* regions, float* out, HeadScratch& scratch);
// Adds the gradient of the scores to grad_bias [n, padded].
void head_backward(const HeadShape& shape, const float* q, const float* k, const float* v, const float* bias,
                   const uint8_t* regions, const float* grad_out, float* grad_q, float* grad_k, float* grad_v,
                   float* grad_bias, HeadScratch& scratch);

}  // namespace redline::models::lift_splat::kernels
