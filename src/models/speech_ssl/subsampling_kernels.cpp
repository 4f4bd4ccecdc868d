// The loops behind subsampling_kernels.h. The channel loop is innermost and contiguous, so one vector holds eight or
// sixteen channels and the taps' inputs are either broadcast scalars (stem) or vectors of the same channels
// (depthwise).
#include "models/speech_ssl/subsampling_kernels.h"

#include <cstring>

#include "models/layers/simd_clones.h"

namespace redline::models::subsampling {

void gather_input_rows(const float* image, int64_t valid, int64_t features, int64_t t, int64_t pad_left, float* rows,
                       int64_t stride) {
  std::memset(rows, 0, static_cast<size_t>(3 * stride) * sizeof(float));
  for (int64_t kt = 0; kt < 3; ++kt) {
    const int64_t source = 2 * t - pad_left + kt;
    if (source < 0 || source >= valid) continue;
    std::memcpy(rows + kt * stride + pad_left, image + source * features,
                static_cast<size_t>(features) * sizeof(float));
  }
}

REDLINE_SIMD_CLONES
void stem_row(const float* __restrict rows, int64_t stride, int64_t features_out, const float* __restrict weight,
              const float* __restrict bias, int64_t channels, float* __restrict out) {
  const float* w = weight;
  const int64_t n = channels;
  for (int64_t f = 0; f < features_out; ++f) {
    const float* r = rows + 2 * f;
    const float x0 = r[0], x1 = r[1], x2 = r[2];
    const float x3 = r[stride], x4 = r[stride + 1], x5 = r[stride + 2];
    const float x6 = r[2 * stride], x7 = r[2 * stride + 1], x8 = r[2 * stride + 2];
    float* o = out + f * n;
    for (int64_t c = 0; c < n; ++c) {
      const float v = bias[c] + x0 * w[c] + x1 * w[n + c] + x2 * w[2 * n + c] + x3 * w[3 * n + c] + x4 * w[4 * n + c] +
                      x5 * w[5 * n + c] + x6 * w[6 * n + c] + x7 * w[7 * n + c] + x8 * w[8 * n + c];
      o[c] = v < 0.0f ? 0.0f : v;  // a NaN stays a NaN, as in torch.relu
    }
  }
}

namespace {

// Nine (or fewer) products per element, in a fixed order of taps.
struct NineInputs {
  const float* p[kTaps];
};

}  // namespace

REDLINE_SIMD_CLONES
void weighted_sum_of_nine(const float* const* in, const float* __restrict w, const float* __restrict bias, int64_t n,
                          float* __restrict out) {
  const float *a0 = in[0], *a1 = in[1], *a2 = in[2], *a3 = in[3], *a4 = in[4], *a5 = in[5], *a6 = in[6], *a7 = in[7],
              *a8 = in[8];
  for (int64_t c = 0; c < n; ++c)
    out[c] = bias[c] + a0[c] * w[c] + a1[c] * w[n + c] + a2[c] * w[2 * n + c] + a3[c] * w[3 * n + c] +
             a4[c] * w[4 * n + c] + a5[c] * w[5 * n + c] + a6[c] * w[6 * n + c] + a7[c] * w[7 * n + c] +
             a8[c] * w[8 * n + c];
}

void depthwise_row(const float* const in_rows[3], int64_t features_in, int64_t features_out, int64_t pad_left,
                   const float* weight, const float* bias, int64_t channels, const float* zeros, float* out) {
  for (int64_t f = 0; f < features_out; ++f) {
    NineInputs inputs;
    for (int64_t k = 0; k < kTaps; ++k) {
      const int64_t source = 2 * f - pad_left + k % 3;
      const float* row = in_rows[k / 3];
      inputs.p[k] = row == nullptr || source < 0 || source >= features_in ? zeros : row + source * channels;
    }
    weighted_sum_of_nine(inputs.p, weight, bias, channels, out + f * channels);
  }
}

// out = relu'(activation) * sum_i g[i] * w[i] for one to four terms. The sum is taken either way: a load behind a
// condition would keep the loop scalar.
REDLINE_SIMD_CLONES
void gated_sum1(const float* __restrict g, const float* __restrict w, const float* __restrict activation, int64_t n,
                float* __restrict out) {
  for (int64_t c = 0; c < n; ++c) {
    const float sum = g[c] * w[c];
    out[c] = activation[c] <= 0.0f ? 0.0f : sum;
  }
}
REDLINE_SIMD_CLONES
void gated_sum2(const float* const* g, const float* const* w, const float* __restrict activation, int64_t n,
                float* __restrict out) {
  const float* __restrict g0 = g[0], * __restrict g1 = g[1], * __restrict w0 = w[0], * __restrict w1 = w[1];
  for (int64_t c = 0; c < n; ++c) {
    const float sum = g0[c] * w0[c] + g1[c] * w1[c];
    out[c] = activation[c] <= 0.0f ? 0.0f : sum;
  }
}
REDLINE_SIMD_CLONES
void gated_sum4(const float* const* g, const float* const* w, const float* __restrict activation, int64_t n,
                float* __restrict out) {
  const float* __restrict g0 = g[0], * __restrict g1 = g[1], * __restrict g2 = g[2], * __restrict g3 = g[3];
  const float* __restrict w0 = w[0], * __restrict w1 = w[1], * __restrict w2 = w[2], * __restrict w3 = w[3];
  for (int64_t c = 0; c < n; ++c) {
    const float sum = g0[c] * w0[c] + g1[c] * w1[c] + g2[c] * w2[c] + g3[c] * w3[c];
    out[c] = activation[c] <= 0.0f ? 0.0f : sum;
  }
}

void depthwise_row_backward_input(const float* const grad_rows[3], int64_t features_in, int64_t features_out,
                                  int64_t pad_left, const float* weight, const float* activation, int64_t channels,
                                  const float* zeros, float* grad_in) {
  for (int64_t f = 0; f < features_in; ++f) {
    const float *g[4], *w[4];
    int64_t terms = 0;
    for (int64_t kt = 0; kt < 3; ++kt) {
      if (grad_rows[kt] == nullptr) continue;
      for (int64_t kf = 0; kf < 3; ++kf) {
        const int64_t doubled = f + pad_left - kf;
        if (doubled < 0 || doubled % 2 != 0 || doubled / 2 >= features_out) continue;
        g[terms] = grad_rows[kt] + doubled / 2 * channels;
        w[terms++] = weight + (kt * 3 + kf) * channels;
      }
    }
    float* out = grad_in + f * channels;
    const float* a = activation + f * channels;
    if (terms == 3) {  // at an edge
      g[3] = w[3] = zeros;
      terms = 4;
    }
    if (terms == 0) std::memset(out, 0, static_cast<size_t>(channels) * sizeof(float));
    if (terms == 1) gated_sum1(g[0], w[0], a, channels, out);
    if (terms == 2) gated_sum2(g, w, a, channels, out);
    if (terms == 4) gated_sum4(g, w, a, channels, out);
  }
}

REDLINE_SIMD_CLONES
void add_products4(const float* __restrict g, int64_t g_step, const float* __restrict x, int64_t x_step, int64_t n,
                   float* __restrict sum) {
  for (int64_t c = 0; c < n; ++c)
    sum[c] += g[c] * x[c] + g[g_step + c] * x[x_step + c] + g[2 * g_step + c] * x[2 * x_step + c] +
              g[3 * g_step + c] * x[3 * x_step + c];
}
REDLINE_SIMD_CLONES
void add_products1(const float* __restrict g, const float* __restrict x, int64_t n, float* __restrict sum) {
  for (int64_t c = 0; c < n; ++c) sum[c] += g[c] * x[c];
}

void depthwise_row_backward_weight(const float* grad_row, const float* in_row, int64_t kt, int64_t features_in,
                                   int64_t features_out, int64_t pad_left, int64_t channels, float* grad_weight) {
  for (int64_t kf = 0; kf < 3; ++kf) {
    float* sum = grad_weight + (kt * 3 + kf) * channels;
    const int64_t shift = kf - pad_left;  // input f of output o: 2 o + shift
    int64_t begin = shift < 0 ? (1 - shift) / 2 : 0;
    int64_t end = features_out;
    while (end > begin && 2 * (end - 1) + shift >= features_in) --end;
    for (; begin + 4 <= end; begin += 4)
      add_products4(grad_row + begin * channels, channels, in_row + (2 * begin + shift) * channels, 2 * channels,
                    channels, sum);
    for (; begin < end; ++begin)
      add_products1(grad_row + begin * channels, in_row + (2 * begin + shift) * channels, channels, sum);
  }
}

// Three taps of one input row share the gradient's loads; eight positions share the sums' loads and stores.
REDLINE_SIMD_CLONES
void stem_taps_backward(const float* __restrict grad, const float* __restrict row, int64_t features_out, int64_t n,
                        float* __restrict sum) {
  int64_t f = 0;
  float *s0 = sum, *s1 = sum + n, *s2 = sum + 2 * n;
  for (; f + 4 <= features_out; f += 4) {
    const float *g0 = grad + f * n, *g1 = g0 + n, *g2 = g1 + n, *g3 = g2 + n;
    const float* x = row + 2 * f;
    const float x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3], x4 = x[4], x5 = x[5], x6 = x[6], x7 = x[7], x8 = x[8];
    for (int64_t c = 0; c < n; ++c) {
      const float a = g0[c], b = g1[c], d = g2[c], e = g3[c];
      s0[c] += a * x0 + b * x2 + d * x4 + e * x6;
      s1[c] += a * x1 + b * x3 + d * x5 + e * x7;
      s2[c] += a * x2 + b * x4 + d * x6 + e * x8;
    }
  }
  for (; f < features_out; ++f) {
    const float* g = grad + f * n;
    const float x0 = row[2 * f], x1 = row[2 * f + 1], x2 = row[2 * f + 2];
    for (int64_t c = 0; c < n; ++c) {
      s0[c] += g[c] * x0;
      s1[c] += g[c] * x1;
      s2[c] += g[c] * x2;
    }
  }
}

void stem_row_backward_weight(const float* grad, const float* rows, int64_t stride, int64_t features_out,
                              int64_t channels, float* grad_weight) {
  for (int64_t kt = 0; kt < 3; ++kt)
    stem_taps_backward(grad, rows + kt * stride, features_out, channels, grad_weight + kt * 3 * channels);
}

REDLINE_SIMD_CLONES
void add_column_sums(const float* __restrict grad, int64_t rows, int64_t channels, float* __restrict sum) {
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const float* g = grad + row * channels;
    for (int64_t c = 0; c < channels; ++c)
      sum[c] += (g[c] + g[channels + c]) + (g[2 * channels + c] + g[3 * channels + c]);
  }
  for (; row < rows; ++row)
    for (int64_t c = 0; c < channels; ++c) sum[c] += grad[row * channels + c];
}

REDLINE_SIMD_CLONES
void bias_relu(float* __restrict x, int64_t rows, const float* __restrict bias, int64_t channels) {
  for (int64_t row = 0; row < rows; ++row) {
    float* v = x + row * channels;
    for (int64_t c = 0; c < channels; ++c) {
      const float sum = v[c] + bias[c];
      v[c] = sum < 0.0f ? 0.0f : sum;
    }
  }
}

REDLINE_SIMD_CLONES
void relu_backward(float* __restrict grad, const float* __restrict activation, int64_t count) {
  for (int64_t i = 0; i < count; ++i) grad[i] = activation[i] <= 0.0f ? 0.0f : grad[i];
}

}  // namespace redline::models::subsampling
