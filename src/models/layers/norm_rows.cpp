// Plain loops; see layers/simd_clones.h for how they become vector code. Reductions along a row use sixteen running
// sums, because the compiler may not reorder a single one.
#include "models/layers/norm_rows.h"

#include <cmath>

#include "models/layers/simd_clones.h"

namespace redline::models::rows {

namespace {
constexpr int64_t kNormSums = 16;
}

REDLINE_SIMD_CLONES
void layer_norm(const float* __restrict x, int64_t num_rows, int64_t n, const float* __restrict weight,
                const float* __restrict bias, float* __restrict out, float* __restrict mean, float* __restrict rstd) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const float* v = x + row * n;
    float partial[kNormSums] = {};
    int64_t i = 0;
    for (; i + kNormSums <= n; i += kNormSums)
      for (int64_t k = 0; k < kNormSums; ++k) partial[k] += v[i + k];
    float sum = 0.0f;
    for (; i < n; ++i) sum += v[i];
    for (int64_t k = 0; k < kNormSums; ++k) sum += partial[k];
    const float mu = sum / static_cast<float>(n);
    for (int64_t k = 0; k < kNormSums; ++k) partial[k] = 0.0f;
    for (i = 0; i + kNormSums <= n; i += kNormSums)
      for (int64_t k = 0; k < kNormSums; ++k) partial[k] += (v[i + k] - mu) * (v[i + k] - mu);
    float squares = 0.0f;
    for (; i < n; ++i) squares += (v[i] - mu) * (v[i] - mu);
    for (int64_t k = 0; k < kNormSums; ++k) squares += partial[k];
    const float r = 1.0f / std::sqrt(squares / static_cast<float>(n) + 1e-5f);
    mean[row] = mu;
    rstd[row] = r;
    float* o = out + row * n;
    for (i = 0; i < n; ++i) o[i] = (v[i] - mu) * r * weight[i] + bias[i];
  }
}

REDLINE_SIMD_CLONES
void layer_norm_backward(const float* __restrict grad, const float* __restrict x, const float* __restrict mean,
                         const float* __restrict rstd, const float* __restrict weight, const float* __restrict residual,
                         int64_t num_rows, int64_t n, float* __restrict out, float* __restrict weight_sum,
                         float* __restrict bias_sum) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const float *g = grad + row * n, *v = x + row * n;
    const float mu = mean[row], r = rstd[row];
    float sum_a[kNormSums] = {}, sum_b[kNormSums] = {};
    float a = 0.0f, b = 0.0f;
    int64_t i = 0;
    for (; i + kNormSums <= n; i += kNormSums)
      for (int64_t k = 0; k < kNormSums; ++k) {
        const float gw = g[i + k] * weight[i + k];
        sum_a[k] += gw;
        sum_b[k] += gw * (v[i + k] - mu);
      }
    for (; i < n; ++i) {
      const float gw = g[i] * weight[i];
      a += gw;
      b += gw * (v[i] - mu);
    }
    for (int64_t k = 0; k < kNormSums; ++k) {
      a += sum_a[k];
      b += sum_b[k];
    }
    const float mean_g = a / static_cast<float>(n), mean_gx = b * r * r / static_cast<float>(n);
    const float* res = residual + row * n;
    float* o = out + row * n;
    for (i = 0; i < n; ++i) {
      const float centred = v[i] - mu;
      o[i] = res[i] + r * (g[i] * weight[i] - mean_g - centred * mean_gx);
      weight_sum[i] += g[i] * centred * r;
      bias_sum[i] += g[i];
    }
  }
}

REDLINE_SIMD_CLONES
void column_sums(const float* __restrict x, int64_t num_rows, int64_t n, float* __restrict sum) {
  int64_t row = 0;
  for (; row + 4 <= num_rows; row += 4) {
    const float* v = x + row * n;
    for (int64_t i = 0; i < n; ++i) sum[i] += (v[i] + v[n + i]) + (v[2 * n + i] + v[3 * n + i]);
  }
  for (; row < num_rows; ++row)
    for (int64_t i = 0; i < n; ++i) sum[i] += x[row * n + i];
}

}  // namespace redline::models::rows
