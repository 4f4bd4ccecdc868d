// Plain loops; see layers/simd_clones.h for how they become vector code. Reductions along a row use sixteen running
// sums, because the compiler may not reorder a single one.
#include "models/convnext/row_kernels.h"

#include <algorithm>
#include <cmath>

#include "models/convnext/gelu.h"
#include "models/layers/panel_gemm.h"
#include "models/layers/simd_clones.h"

namespace redline::models::convnext::rows {

namespace {
constexpr int64_t kSums = 16;
constexpr float kEpsilon = 1e-6f;
}  // namespace

REDLINE_SIMD_CLONES
void normalise(const float* x, int64_t num_rows, int64_t n, float* hat, float* rstd) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const float* v = x + row * n;
    float partial[kSums] = {};
    int64_t i = 0;
    for (; i + kSums <= n; i += kSums)
      for (int64_t k = 0; k < kSums; ++k) partial[k] += v[i + k];
    float sum = 0.0f;
    for (; i < n; ++i) sum += v[i];
    for (int64_t k = 0; k < kSums; ++k) sum += partial[k];
    const float mean = sum / static_cast<float>(n);
    for (int64_t k = 0; k < kSums; ++k) partial[k] = 0.0f;
    for (i = 0; i + kSums <= n; i += kSums)
      for (int64_t k = 0; k < kSums; ++k) partial[k] += (v[i + k] - mean) * (v[i + k] - mean);
    float squares = 0.0f;
    for (; i < n; ++i) squares += (v[i] - mean) * (v[i] - mean);
    for (int64_t k = 0; k < kSums; ++k) squares += partial[k];
    const float r = 1.0f / std::sqrt(squares / static_cast<float>(n) + kEpsilon);
    rstd[row] = r;
    float* o = hat + row * n;
#pragma GCC ivdep
    for (i = 0; i < n; ++i) o[i] = (v[i] - mean) * r;
  }
}

REDLINE_SIMD_CLONES
void affine(const float* hat, const float* __restrict weight, const float* __restrict bias, int64_t num_rows, int64_t n,
            float* out) {
  for (int64_t row = 0; row < num_rows; ++row)
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[row * n + i] = hat[row * n + i] * weight[i] + bias[i];
}

REDLINE_SIMD_CLONES
void affine_to_panels(const float* __restrict hat, const float* __restrict weight, const float* __restrict bias,
                      int64_t num_rows, int64_t n, int64_t panel_rows, float* __restrict out) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const float* h = hat + row * n;
    float* o = out + row * panels::kPanel;
    int64_t c = 0;
    for (; c + panels::kPanel <= n; c += panels::kPanel, o += panel_rows * panels::kPanel)
      for (int64_t i = 0; i < panels::kPanel; ++i) o[i] = h[c + i] * weight[c + i] + bias[c + i];
    if (c == n) continue;
    for (int64_t i = 0; i < panels::kPanel; ++i) o[i] = c + i < n ? h[c + i] * weight[c + i] + bias[c + i] : 0.0f;
  }
}

REDLINE_SIMD_CLONES
void norm_backward(const float* grad, const float* __restrict hat, const float* __restrict rstd,
                   const float* __restrict weight, int64_t num_rows, int64_t n, float* out,
                   float* __restrict weight_sum, float* __restrict bias_sum) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const float *g = grad + row * n, *h = hat + row * n;
    float sum_a[kSums] = {}, sum_b[kSums] = {};
    float a = 0.0f, b = 0.0f;
    int64_t i = 0;
    for (; i + kSums <= n; i += kSums)
      for (int64_t k = 0; k < kSums; ++k) {
        const float gw = g[i + k] * weight[i + k];
        sum_a[k] += gw;
        sum_b[k] += gw * h[i + k];
      }
    for (; i < n; ++i) {
      const float gw = g[i] * weight[i];
      a += gw;
      b += gw * h[i];
    }
    for (int64_t k = 0; k < kSums; ++k) {
      a += sum_a[k];
      b += sum_b[k];
    }
    const float r = rstd[row], mean_g = a / static_cast<float>(n), mean_gh = b / static_cast<float>(n);
    float* o = out + row * n;
#pragma GCC ivdep
    for (i = 0; i < n; ++i) {
      const float value = g[i];
      weight_sum[i] += value * h[i];
      bias_sum[i] += value;
      o[i] = r * (value * weight[i] - mean_g - h[i] * mean_gh);
    }
  }
}

REDLINE_SIMD_CLONES
void bias_gelu(float* __restrict h, const float* __restrict bias, int64_t num_rows, int64_t n, float* __restrict out) {
  for (int64_t row = 0; row < num_rows; ++row) {
    float *v = h + row * n, *o = out + row * n;
    for (int64_t i = 0; i < n; ++i) {
      const float x = v[i] + bias[i];
      v[i] = x;
      gelu_value(GeluPoint<float>(x), o[i]);
    }
  }
}

REDLINE_SIMD_CLONES
void gelu_backward(float* __restrict grad, const float* __restrict h, int64_t num_rows, int64_t n,
                   float* __restrict activation, float* __restrict sum) {
  for (int64_t row = 0; row < num_rows; ++row) {
    float *g = grad + row * n, *a = activation + row * n;
    const float* v = h + row * n;
    for (int64_t i = 0; i < n; ++i) {
      const GeluPoint<float> p(v[i]);
      gelu_value(p, a[i]);
      float slope;
      gelu_slope(p, slope);
      g[i] *= slope;
      sum[i] += g[i];
    }
  }
}

REDLINE_SIMD_CLONES
void residual_run(const float* __restrict r, const float* __restrict y, const float* __restrict bias,
                  const float* __restrict scale, float factor, int64_t num_rows, int64_t n, float* __restrict out) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const float *rr = r + row * n, *yy = y + row * n;
    float* o = out + row * n;
    if (scale == nullptr)
      for (int64_t i = 0; i < n; ++i) o[i] = rr[i] + factor * (yy[i] + bias[i]);
    else
      for (int64_t i = 0; i < n; ++i) o[i] = rr[i] + factor * (scale[i] * (yy[i] + bias[i]));
  }
}

REDLINE_SIMD_CLONES
void kept_run(const float* __restrict grad, float factor, int64_t num_rows, int64_t n, float* __restrict kept) {
  for (int64_t i = 0; i < num_rows * n; ++i) kept[i] = grad[i] * factor;
}
REDLINE_SIMD_CLONES
void kept_panels_run(const float* __restrict grad, float factor, int64_t num_rows, int64_t n, int64_t panel_rows,
                     float* __restrict kept, float* __restrict sum) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const float* g = grad + row * n;
    float* o = kept + row * panels::kPanel;
    int64_t c = 0;
    for (; c + panels::kPanel <= n; c += panels::kPanel, o += panel_rows * panels::kPanel)
      for (int64_t i = 0; i < panels::kPanel; ++i) {
        const float value = g[c + i] * factor;
        sum[c + i] += value;
        o[i] = value;
      }
    if (c == n) continue;
    for (int64_t i = 0; i < panels::kPanel; ++i) o[i] = c + i < n ? g[c + i] * factor : 0.0f;
    for (; c < n; ++c) sum[c] += g[c] * factor;
  }
}
REDLINE_SIMD_CLONES
void scaled_run(const float* __restrict grad, const float* __restrict scale, float factor, int64_t num_rows, int64_t n,
                float* __restrict scaled, float* __restrict sum) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const float* g = grad + row * n;
    float* o = scaled + row * n;
    if (scale == nullptr)
      for (int64_t i = 0; i < n; ++i) {
        const float value = g[i] * factor;
        sum[i] += value;
        o[i] = value;
      }
    else
      for (int64_t i = 0; i < n; ++i) {
        const float value = g[i] * factor;
        sum[i] += value;
        o[i] = value * scale[i];
      }
  }
}

namespace {

// run(first row, rows, factor) for each stretch of rows that belong to one picture.
template <class Run>
void for_images(const Factors& factors, int64_t num_rows, const Run& run) {
  if (factors.of_image == nullptr) return run(0, num_rows, 1.0f);
  for (int64_t row = 0; row < num_rows;) {
    const int64_t image = (factors.first_row + row) / factors.rows_per_image;
    const int64_t stop = std::min(num_rows, (image + 1) * factors.rows_per_image - factors.first_row);
    run(row, stop - row, factors.of_image[image]);
    row = stop;
  }
}

}  // namespace

void residual(const float* r, const float* y, const float* bias, const float* scale, const Factors& factors,
              int64_t num_rows, int64_t n, float* out) {
  for_images(factors, num_rows, [&](int64_t row, int64_t count, float factor) {
    residual_run(r + row * n, y + row * n, bias, scale, factor, count, n, out + row * n);
  });
}

void residual_backward(const float* grad, const float* scale, const Factors& factors, int64_t num_rows, int64_t n,
                       float* kept, float* scaled, float* sum) {
  for_images(factors, num_rows, [&](int64_t row, int64_t count, float factor) {
    if (kept != nullptr) kept_run(grad + row * n, factor, count, n, kept + row * n);
    scaled_run(grad + row * n, scale, factor, count, n, scaled + row * n, sum);
  });
}

void kept_to_panels(const float* grad, const Factors& factors, int64_t num_rows, int64_t n, int64_t panel_rows,
                    float* kept, float* sum) {
  for_images(factors, num_rows, [&](int64_t row, int64_t count, float factor) {
    kept_panels_run(grad + row * n, factor, count, n, panel_rows, kept + row * panels::kPanel, sum);
  });
}

REDLINE_SIMD_CLONES
float scale_and_dot(float* __restrict p, const float* __restrict w, float scale, int64_t n) {
  float partial[kSums] = {}, sum = 0.0f;
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int64_t k = 0; k < kSums; ++k) {
      partial[k] += p[i + k] * w[i + k];
      p[i + k] *= scale;
    }
  for (; i < n; ++i) {
    sum += p[i] * w[i];
    p[i] *= scale;
  }
  for (int64_t k = 0; k < kSums; ++k) sum += partial[k];
  return sum;
}

REDLINE_SIMD_CLONES
void add_bias(float* __restrict x, const float* __restrict bias, int64_t num_rows, int64_t n) {
  for (int64_t row = 0; row < num_rows; ++row)
    for (int64_t i = 0; i < n; ++i) x[row * n + i] += bias[i];
}

REDLINE_SIMD_CLONES
void add_column_sums(const float* __restrict x, int64_t num_rows, int64_t n, float* __restrict sum) {
  for (int64_t row = 0; row < num_rows; ++row)
    for (int64_t i = 0; i < n; ++i) sum[i] += x[row * n + i];
}

}  // namespace redline::models::convnext::rows
