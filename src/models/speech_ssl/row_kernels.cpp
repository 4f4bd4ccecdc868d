// Plain loops; see layers/simd_clones.h for how they become vector code. Reductions along a row use sixteen running
// sums, because the compiler may not reorder a single one.
#include "models/speech_ssl/row_kernels.h"

#include <cmath>
#include <cstring>

#include "models/layers/simd_clones.h"
#include "models/layers/vector_math.h"

namespace redline::models::speech::rows {

Dropout::Dropout(const task::Context& ctx, double p, std::string_view operation, int64_t time)
    : draw_(ctx.dropout_draw(p, operation)), time_(time) {
  if (on()) samples_.assign(ctx.sample_ids().begin(), ctx.sample_ids().end());
}

Keep Dropout::run(int64_t clip, uint64_t first, int64_t count, std::vector<uint16_t>& scratch) const {
  if (!on()) return {nullptr, 0, 1.0f};
  const int64_t blocks = (count + 7) / 8;
  scratch.resize(static_cast<size_t>(blocks * 8));
  task::philox_words(draw_.key, samples_[static_cast<size_t>(clip)], first / 8, blocks,
                     reinterpret_cast<uint32_t*>(scratch.data()), task::best_random_path());
  return {scratch.data(), draw_.threshold, draw_.scale};
}

Keep Dropout::rows(int64_t begin, int64_t end, int64_t columns, std::vector<uint16_t>& scratch) const {
  if (!on()) return {nullptr, 0, 1.0f};
  scratch.resize(static_cast<size_t>((end - begin) * columns + 16));
  std::vector<uint16_t> words;
  for (int64_t row = begin; row < end;) {
    const int64_t clip = row / time_, stop = std::min(end, (clip + 1) * time_);
    const int64_t first = (row - clip * time_) * columns, count = (stop - row) * columns, skipped = first % 8;
    uint16_t* target = scratch.data() + (row - begin) * columns;
    if (skipped == 0 && count % 8 == 0) {
      task::philox_words(draw_.key, samples_[static_cast<size_t>(clip)], static_cast<uint64_t>(first / 8), count / 8,
                         reinterpret_cast<uint32_t*>(target), task::best_random_path());
    } else {
      const Keep source = run(clip, static_cast<uint64_t>(first - skipped), count + skipped, words);
      std::memcpy(target, source.bits + skipped, static_cast<size_t>(count) * sizeof(uint16_t));
    }
    row = stop;
  }
  return {scratch.data(), draw_.threshold, draw_.scale};
}

namespace {
constexpr int64_t kSums = 16;
}

REDLINE_SIMD_CLONES
void add_bias(float* __restrict x, const float* __restrict bias, int64_t num_rows, int64_t n) {
  for (int64_t row = 0; row < num_rows; ++row)
    for (int64_t i = 0; i < n; ++i) x[row * n + i] += bias[i];
}

REDLINE_SIMD_CLONES
void swish_drop(const float* __restrict h, const uint16_t* __restrict bits, int32_t threshold, float scale,
                int64_t count, float* __restrict out) {
  if (bits == nullptr) {
    for (int64_t i = 0; i < count; ++i) out[i] = h[i] * fast_sigmoid(h[i]);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const float kept = static_cast<int32_t>(bits[i]) >= threshold ? scale : 0.0f;
    out[i] = h[i] * fast_sigmoid(h[i]) * kept;
  }
}

void bias_swish_drop(float* h, const float* bias, const Keep& keep, int64_t num_rows, int64_t n, float* out) {
  if (bias != nullptr) add_bias(h, bias, num_rows, n);
  swish_drop(h, keep.bits, static_cast<int32_t>(keep.threshold), keep.scale, num_rows * n, out);
}

REDLINE_SIMD_CLONES
void swish_drop_backward_run(float* __restrict grad, const float* __restrict h, const uint16_t* __restrict bits,
                             int32_t threshold, float scale, int64_t count, float* __restrict activation) {
  if (bits == nullptr) {
    for (int64_t i = 0; i < count; ++i) {
      const float s = fast_sigmoid(h[i]);
      activation[i] = h[i] * s;
      grad[i] *= s * (1.0f + h[i] * (1.0f - s));
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const float kept = static_cast<int32_t>(bits[i]) >= threshold ? scale : 0.0f;
    const float s = fast_sigmoid(h[i]);
    activation[i] = h[i] * s * kept;
    grad[i] *= s * (1.0f + h[i] * (1.0f - s)) * kept;
  }
}

void swish_drop_backward(float* grad, const float* h, const Keep& keep, int64_t count, float* activation) {
  swish_drop_backward_run(grad, h, keep.bits, static_cast<int32_t>(keep.threshold), keep.scale, count, activation);
}

REDLINE_SIMD_CLONES
void residual_drop_run(const float* __restrict r, const float* __restrict y, const float* __restrict bias,
                       const uint16_t* __restrict bits, int32_t threshold, float factor, int64_t num_rows, int64_t n,
                       float* __restrict out) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const float *rr = r + row * n, *yy = y + row * n;
    float* o = out + row * n;
    if (bits == nullptr) {
      for (int64_t i = 0; i < n; ++i) o[i] = rr[i] + factor * (yy[i] + bias[i]);
    } else {
      const uint16_t* b = bits + row * n;
      for (int64_t i = 0; i < n; ++i) {
        const float kept = static_cast<int32_t>(b[i]) >= threshold ? factor : 0.0f;
        o[i] = rr[i] + kept * (yy[i] + bias[i]);
      }
    }
  }
}

void residual_drop(const float* r, const float* y, const float* bias, const Keep& keep, float factor, int64_t num_rows,
                   int64_t n, float* out) {
  std::vector<float> zeros;
  if (bias == nullptr) {
    zeros.assign(static_cast<size_t>(n), 0.0f);
    bias = zeros.data();
  }
  const float scaled = keep.bits == nullptr ? factor : factor * keep.scale;
  residual_drop_run(r, y, bias, keep.bits, static_cast<int32_t>(keep.threshold), scaled, num_rows, n, out);
}

// out may be grad itself, so the pointers are not restricted; ivdep says that no other overlap exists.
REDLINE_SIMD_CLONES
void scaled_drop_run(const float* grad, const uint16_t* __restrict bits, int32_t threshold, float factor, int64_t count,
                     float* out) {
  if (bits == nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) out[i] = factor * grad[i];
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) out[i] = (static_cast<int32_t>(bits[i]) >= threshold ? factor : 0.0f) * grad[i];
  }
}

void scaled_drop(const float* grad, const Keep& keep, float factor, int64_t count, float* out) {
  scaled_drop_run(grad, keep.bits, static_cast<int32_t>(keep.threshold),
                  keep.bits == nullptr ? factor : factor * keep.scale, count, out);
}

void drop_row(const float* x, const Keep& keep, int64_t count, float* out) { scaled_drop(x, keep, 1.0f, count, out); }

REDLINE_SIMD_CLONES
void glu(const float* __restrict u, int64_t num_rows, int64_t n, float* __restrict out) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const float *left = u + row * 2 * n, *right = left + n;
    float* o = out + row * n;
    for (int64_t i = 0; i < n; ++i) o[i] = left[i] * fast_sigmoid(right[i]);
  }
}

void bias_glu(float* u, const float* bias, int64_t num_rows, int64_t n, float* out) {
  if (bias != nullptr) add_bias(u, bias, num_rows, 2 * n);
  glu(u, num_rows, n, out);
}

REDLINE_SIMD_CLONES
void glu_backward(const float* __restrict grad, const float* __restrict u, int64_t num_rows, int64_t n,
                  float* __restrict grad_u) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const float *left = u + row * 2 * n, *right = left + n, *g = grad + row * n;
    float *gl = grad_u + row * 2 * n, *gr = gl + n;
    for (int64_t i = 0; i < n; ++i) {
      const float s = fast_sigmoid(right[i]);
      gl[i] = g[i] * s;
      gr[i] = g[i] * left[i] * s * (1.0f - s);
    }
  }
}

REDLINE_SIMD_CLONES
void affine_swish(const float* __restrict x, const float* __restrict scale, const float* __restrict shift,
                  int64_t num_rows, int64_t n, float* __restrict out) {
  for (int64_t row = 0; row < num_rows; ++row)
    for (int64_t i = 0; i < n; ++i) {
      const float v = x[row * n + i] * scale[i] + shift[i];
      out[row * n + i] = v * fast_sigmoid(v);
    }
}

REDLINE_SIMD_CLONES
void affine_swish_backward(float* __restrict grad, const float* __restrict x, const float* __restrict scale,
                           const float* __restrict shift, const float* __restrict mean, const float* __restrict rstd,
                           int64_t num_rows, int64_t n, float* __restrict activation, float* __restrict grad_sum,
                           float* __restrict grad_x_sum) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const float* v = x + row * n;
    float *g = grad + row * n, *a = activation + row * n;
    for (int64_t i = 0; i < n; ++i) {
      const float y = v[i] * scale[i] + shift[i];
      const float s = fast_sigmoid(y);
      a[i] = y * s;
      const float inner = g[i] * s * (1.0f + y * (1.0f - s));
      g[i] = inner;
      grad_sum[i] += inner;
      grad_x_sum[i] += inner * (v[i] - mean[i]) * rstd[i];
    }
  }
}

REDLINE_SIMD_CLONES
void batch_norm_backward(float* __restrict grad, const float* __restrict x, const float* __restrict mean,
                         const float* __restrict rstd, const float* __restrict weight_rstd,
                         const float* __restrict mean_grad, const float* __restrict mean_grad_x, int64_t num_rows,
                         int64_t n) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const float* v = x + row * n;
    float* g = grad + row * n;
    for (int64_t i = 0; i < n; ++i)
      g[i] = weight_rstd[i] * (g[i] - mean_grad[i] - (v[i] - mean[i]) * rstd[i] * mean_grad_x[i]);
  }
}

REDLINE_SIMD_CLONES
void add_weighted_rows(const float* __restrict in, int64_t in_step, const float* __restrict weight, int64_t weight_step,
                       int64_t count, int64_t n, float* __restrict out) {
  int64_t k = 0;
  for (; k + 3 <= count; k += 3) {
    const float *a = in + k * in_step, *b = a + in_step, *c = b + in_step;
    const float *u = weight + k * weight_step, *v = u + weight_step, *w = v + weight_step;
    for (int64_t i = 0; i < n; ++i) out[i] += a[i] * u[i] + b[i] * v[i] + c[i] * w[i];
  }
  for (; k < count; ++k) {
    const float *a = in + k * in_step, *u = weight + k * weight_step;
    for (int64_t i = 0; i < n; ++i) out[i] += a[i] * u[i];
  }
}

void depthwise_frame(const float* in, int64_t length, int64_t t, int64_t left, int64_t taps, const float* weight,
                     const float* bias, int64_t n, float* out) {
  if (bias != nullptr)
    std::memcpy(out, bias, static_cast<size_t>(n) * sizeof(float));
  else
    std::memset(out, 0, static_cast<size_t>(n) * sizeof(float));
  const int64_t first = std::max<int64_t>(0, left - t), last = std::min(taps, length - t + left);
  if (first < last) add_weighted_rows(in + (t - left + first) * n, n, weight + first * n, n, last - first, n, out);
}

void depthwise_frame_backward(const float* grad, int64_t time, int64_t t, int64_t left, int64_t taps,
                              const float* weight, int64_t n, float* out) {
  std::memset(out, 0, static_cast<size_t>(n) * sizeof(float));
  // Output frame s = t + left - k reads tap k of input t.
  const int64_t first = std::max<int64_t>(0, t + left - time + 1), last = std::min(taps, t + left + 1);
  if (first < last) add_weighted_rows(grad + (t + left - first) * n, -n, weight + first * n, n, last - first, n, out);
}

REDLINE_SIMD_CLONES
void add_row_products(const float* __restrict a, const float* __restrict b, int64_t count, int64_t n,
                      float* __restrict sum) {
  int64_t t = 0;
  for (; t + 4 <= count; t += 4) {
    const float *x = a + t * n, *y = b + t * n;
    for (int64_t i = 0; i < n; ++i)
      sum[i] += (x[i] * y[i] + x[n + i] * y[n + i]) + (x[2 * n + i] * y[2 * n + i] + x[3 * n + i] * y[3 * n + i]);
  }
  for (; t < count; ++t)
    for (int64_t i = 0; i < n; ++i) sum[i] += a[t * n + i] * b[t * n + i];
}

void depthwise_weight_sums(const float* grad, const float* in, int64_t time, int64_t length, int64_t left, int64_t taps,
                           int64_t n, float* weight_sum, int64_t frames_before) {
  for (int64_t k = 0; k < taps; ++k) {
    const int64_t shift = k - left;  // input frame of output t: t + shift
    const int64_t first = std::max<int64_t>(0, -shift - frames_before), last = std::min(time, length - shift);
    if (first < last) add_row_products(grad + first * n, in + (first + shift) * n, last - first, n, weight_sum + k * n);
  }
}

REDLINE_SIMD_CLONES
void column_squares(const float* __restrict x, const float* __restrict mean, int64_t num_rows, int64_t n,
                    float* __restrict sum) {
  for (int64_t row = 0; row < num_rows; ++row)
    for (int64_t i = 0; i < n; ++i) sum[i] += (x[row * n + i] - mean[i]) * (x[row * n + i] - mean[i]);
}

REDLINE_SIMD_CLONES
void softmax_row(const float* __restrict ac, const float* __restrict bd, float scale, int64_t count,
                 float* __restrict p) {
  float top[kSums];
  for (int64_t k = 0; k < kSums; ++k) top[k] = -INFINITY;
  for (int64_t j = 0; j < count; ++j) p[j] = (ac[j] + bd[j]) * scale;
  int64_t j = 0;
  for (; j + kSums <= count; j += kSums)
    for (int64_t k = 0; k < kSums; ++k) top[k] = p[j + k] > top[k] ? p[j + k] : top[k];
  float largest = -INFINITY;
  for (; j < count; ++j) largest = p[j] > largest ? p[j] : largest;
  for (int64_t k = 0; k < kSums; ++k) largest = top[k] > largest ? top[k] : largest;
  for (j = 0; j < count; ++j) p[j] = fast_exp(p[j] - largest);
  float partial[kSums] = {};
  for (j = 0; j + kSums <= count; j += kSums)
    for (int64_t k = 0; k < kSums; ++k) partial[k] += p[j + k];
  float sum = 0.0f;
  for (; j < count; ++j) sum += p[j];
  for (int64_t k = 0; k < kSums; ++k) sum += partial[k];
  const float inverse = 1.0f / sum;
  for (j = 0; j < count; ++j) p[j] *= inverse;
}

REDLINE_SIMD_CLONES
void softmax_row_backward(float* __restrict grad, const float* __restrict p, float scale, int64_t count) {
  float partial[kSums] = {};
  float dot = 0.0f;
  int64_t j = 0;
  for (; j + kSums <= count; j += kSums)
    for (int64_t k = 0; k < kSums; ++k) partial[k] += grad[j + k] * p[j + k];
  for (; j < count; ++j) dot += grad[j] * p[j];
  for (int64_t k = 0; k < kSums; ++k) dot += partial[k];
  for (j = 0; j < count; ++j) grad[j] = p[j] * (grad[j] - dot) * scale;
}

}  // namespace redline::models::speech::rows
