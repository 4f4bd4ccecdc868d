#include "models/lift_splat/swin_kernels.h"

#include "models/layers/simd.h"
#include "models/layers/simd_clones.h"
#include "models/layers/small_gemm.h"
#include "models/layers/softmax_rows.h"
#include "models/layers/vector_math.h"

namespace redline::models::lift_splat::kernels {

namespace {

// Abramowitz & Stegun 7.1.26, as in layers/simd.h, in the form that loops vectorise: cdf and density of the normal
// distribution.
REDLINE_VECTOR_MATH void normal_at(float x, float& cdf, float& density) {
  const float gauss = fast_exp(x * x * -0.5f);
  const float size = (x < 0.0f ? -x : x) * 0.70710678118654752f;
  const float t = 1.0f / (size * 0.3275911f + 1.0f);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const float tail = p * t * gauss * 0.5f;
  cdf = x < 0.0f ? tail : 1.0f - tail;
  density = gauss * 0.39894228040143268f;
}

REDLINE_SIMD_CLONES void bias_gelu_row(float* h, const float* bias, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float x = h[i] + bias[i];
    float cdf, density;
    normal_at(x, cdf, density);
    h[i] = x;
    out[i] = x * cdf;
  }
}

void transpose_head(const float* from, const HeadShape& s, float* to) {
  for (int64_t c = 0; c < s.head_dim; ++c)
    for (int64_t j = s.n; j < s.padded; ++j) to[c * s.padded + j] = 0.0f;
  for (int64_t j = 0; j < s.n; ++j)
    for (int64_t c = 0; c < s.head_dim; ++c) to[c * s.padded + j] = from[j * s.stride + c];
}

// The softmax weights of all rows, zero beyond n. Without `sums` they are normalised; with it the caller divides.
void head_weights(const HeadShape& s, const float* q, const float* k, const float* bias, const uint8_t* regions,
                  HeadScratch& scratch, float* sums) {
  using simd::load, simd::store;
  constexpr int64_t kLanes = simd::kLanes<float>;
  transpose_head(k, s, scratch.transposed.data());
  float* weights = scratch.weights.data();
  small_gemm<float, false>(s.n, s.padded, s.head_dim, q, s.stride, 1, scratch.transposed.data(), s.padded, weights,
                           s.padded);
  for (int64_t i = 0; i < s.n; ++i) {
    float* row = weights + i * s.padded;
    const float* shift = bias + i * s.padded;
    for (int64_t j = 0; j < s.padded; j += kLanes) store(row + j, load(row + j) * s.scale + load(shift + j));
    if (regions != nullptr)
      for (int64_t j = 0; j < s.n; ++j)
        if (regions[j] != regions[i]) row[j] -= 100.0f;
    const float sum = exp_row<float>(row, s.n, s.padded, max_row<float>(row, s.n));
    if (sums != nullptr) {
      sums[i] = sum;
      continue;
    }
    const float inverse = 1.0f / sum;
    for (int64_t j = 0; j < s.padded; j += kLanes) store(row + j, load(row + j) * inverse);
  }
}

}  // namespace

void bias_gelu(float* h, const float* bias, int64_t num_rows, int64_t n, float* out) {
  for (int64_t r = 0; r < num_rows; ++r) bias_gelu_row(h + r * n, bias, n, out + r * n);
}

REDLINE_SIMD_CLONES void gelu_backward(float* grad, const float* h, int64_t count, float* activation) {
  for (int64_t i = 0; i < count; ++i) {
    float cdf, density;
    normal_at(h[i], cdf, density);
    activation[i] = h[i] * cdf;
    grad[i] *= cdf + h[i] * density;
  }
}

HeadScratch::HeadScratch(const HeadShape& shape)
    : transposed(static_cast<size_t>(shape.head_dim * shape.padded)),
      weights(static_cast<size_t>(shape.n * shape.padded)),
      grads(static_cast<size_t>(shape.n * shape.padded)) {}

void head_forward(const HeadShape& s, const float* q, const float* k, const float* v, const float* bias,
                  const uint8_t* regions, float* out, HeadScratch& scratch) {
  float* sums = scratch.grads.data();
  head_weights(s, q, k, bias, regions, scratch, sums);
  small_gemm<float, false>(s.n, s.head_dim, s.n, scratch.weights.data(), s.padded, 1, v, s.stride, out, s.out_stride);
  for (int64_t i = 0; i < s.n; ++i) {
    const float inverse = 1.0f / sums[i];
    for (int64_t c = 0; c < s.head_dim; ++c) out[i * s.out_stride + c] *= inverse;
  }
}

void head_backward(const HeadShape& s, const float* q, const float* k, const float* v, const float* bias,
                   const uint8_t* regions, const float* grad_out, float* grad_q, float* grad_k, float* grad_v,
                   float* grad_bias, HeadScratch& scratch) {
  using simd::load, simd::store, simd::Vec;
  constexpr int64_t kLanes = simd::kLanes<float>;
  head_weights(s, q, k, bias, regions, scratch, nullptr);
  float *p = scratch.weights.data(), *g = scratch.grads.data();
  small_gemm<float, false>(s.n, s.head_dim, s.n, p, 1, s.padded, grad_out, s.out_stride, grad_v, s.stride);
  transpose_head(v, s, scratch.transposed.data());
  small_gemm<float, false>(s.n, s.padded, s.head_dim, grad_out, s.out_stride, 1, scratch.transposed.data(), s.padded, g,
                           s.padded);
  for (int64_t i = 0; i < s.n; ++i) {
    float *weight_row = p + i * s.padded, *grad_row = g + i * s.padded, *bias_row = grad_bias + i * s.padded;
    Vec<float> dot{};
    for (int64_t j = 0; j < s.padded; j += kLanes) dot += load(weight_row + j) * load(grad_row + j);
    const float mean = simd::sum_lanes<float>(dot);
    for (int64_t j = 0; j < s.padded; j += kLanes) {
      const Vec<float> score = load(weight_row + j) * (load(grad_row + j) - mean);
      store(bias_row + j, load(bias_row + j) + score);
      store(grad_row + j, score * s.scale);
    }
  }
  small_gemm<float, false>(s.n, s.head_dim, s.n, g, s.padded, 1, k, s.stride, grad_q, s.stride);
  small_gemm<float, false>(s.n, s.head_dim, s.n, g, 1, s.padded, q, s.stride, grad_k, s.stride);
}

}  // namespace redline::models::lift_splat::kernels
