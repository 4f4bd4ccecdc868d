// Sixteen channels at a time in small arrays, which the compiler keeps in vector registers or the L1 cache.
#include "models/lift_splat/winograd_kernels.h"

#include "models/layers/simd_clones.h"

namespace redline::models::lift_splat::winograd {

REDLINE_SIMD_CLONES void input_tile(const float* const pixels[36], int64_t channels, float* to, int64_t stride) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    float mid[6][6][kLanes];  // after the columns
    for (int64_t j = 0; j < 6; ++j) {
      const float *p0 = pixels[j] + c, *p1 = pixels[6 + j] + c, *p2 = pixels[12 + j] + c, *p3 = pixels[18 + j] + c,
                  *p4 = pixels[24 + j] + c, *p5 = pixels[30 + j] + c;
      for (int64_t k = 0; k < kLanes; ++k) {
        const float even = p4[k] - 4.0f * p2[k], odd = p3[k] - 4.0f * p1[k], half = p4[k] - p2[k],
                    twice = 2.0f * (p3[k] - p1[k]);
        mid[0][j][k] = 4.0f * p0[k] - 5.0f * p2[k] + p4[k];
        mid[1][j][k] = even + odd;
        mid[2][j][k] = even - odd;
        mid[3][j][k] = half + twice;
        mid[4][j][k] = half - twice;
        mid[5][j][k] = 4.0f * p1[k] - 5.0f * p3[k] + p5[k];
      }
    }
    for (int64_t i = 0; i < 6; ++i) {
      float* out = to + 6 * i * stride + c;
      for (int64_t k = 0; k < kLanes; ++k) {
        const float d0 = mid[i][0][k], d1 = mid[i][1][k], d2 = mid[i][2][k], d3 = mid[i][3][k], d4 = mid[i][4][k],
                    d5 = mid[i][5][k];
        const float even = d4 - 4.0f * d2, odd = d3 - 4.0f * d1, half = d4 - d2, twice = 2.0f * (d3 - d1);
        out[k] = 4.0f * d0 - 5.0f * d2 + d4;
        out[stride + k] = even + odd;
        out[2 * stride + k] = even - odd;
        out[3 * stride + k] = half + twice;
        out[4 * stride + k] = half - twice;
        out[5 * stride + k] = 4.0f * d1 - 5.0f * d3 + d5;
      }
    }
  }
}

REDLINE_SIMD_CLONES void output_tile(const float* from, int64_t stride, int64_t channels, float* const pixels[16]) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    float mid[4][6][kLanes];
    for (int64_t j = 0; j < 6; ++j) {
      const float* m = from + j * stride + c;
      const int64_t row = 6 * stride;
      for (int64_t k = 0; k < kLanes; ++k) {
        const float m0 = m[k], m1 = m[row + k], m2 = m[2 * row + k], m3 = m[3 * row + k], m4 = m[4 * row + k],
                    m5 = m[5 * row + k];
        const float sum1 = m1 + m2, difference1 = m1 - m2, sum2 = m3 + m4, difference2 = m3 - m4;
        mid[0][j][k] = m0 + sum1 + sum2;
        mid[1][j][k] = difference1 + 2.0f * difference2;
        mid[2][j][k] = sum1 + 4.0f * sum2;
        mid[3][j][k] = difference1 + 8.0f * difference2 + m5;
      }
    }
    for (int64_t i = 0; i < 4; ++i) {
      float *y0 = pixels[4 * i] + c, *y1 = pixels[4 * i + 1] + c, *y2 = pixels[4 * i + 2] + c,
            *y3 = pixels[4 * i + 3] + c;
      for (int64_t k = 0; k < kLanes; ++k) {
        const float sum1 = mid[i][1][k] + mid[i][2][k], difference1 = mid[i][1][k] - mid[i][2][k],
                    sum2 = mid[i][3][k] + mid[i][4][k], difference2 = mid[i][3][k] - mid[i][4][k];
        y0[k] = mid[i][0][k] + sum1 + sum2;
        y1[k] = difference1 + 2.0f * difference2;
        y2[k] = sum1 + 4.0f * sum2;
        y3[k] = difference1 + 8.0f * difference2 + mid[i][5][k];
      }
    }
  }
}

REDLINE_SIMD_CLONES void output_gradient_tile(const float* const pixels[16], int64_t channels, float* to,
                                              int64_t stride) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    float mid[6][4][kLanes];
    for (int64_t j = 0; j < 4; ++j) {
      const float *p0 = pixels[j] + c, *p1 = pixels[4 + j] + c, *p2 = pixels[8 + j] + c, *p3 = pixels[12 + j] + c;
      for (int64_t k = 0; k < kLanes; ++k) {
        const float even1 = p0[k] + p2[k], odd1 = p1[k] + p3[k], even2 = p0[k] + 4.0f * p2[k],
                    odd2 = 2.0f * p1[k] + 8.0f * p3[k];
        mid[0][j][k] = p0[k];
        mid[1][j][k] = even1 + odd1;
        mid[2][j][k] = even1 - odd1;
        mid[3][j][k] = even2 + odd2;
        mid[4][j][k] = even2 - odd2;
        mid[5][j][k] = p3[k];
      }
    }
    for (int64_t i = 0; i < 6; ++i) {
      float* out = to + 6 * i * stride + c;
      for (int64_t k = 0; k < kLanes; ++k) {
        const float g0 = mid[i][0][k], g1 = mid[i][1][k], g2 = mid[i][2][k], g3 = mid[i][3][k];
        const float even1 = g0 + g2, odd1 = g1 + g3, even2 = g0 + 4.0f * g2, odd2 = 2.0f * g1 + 8.0f * g3;
        out[k] = g0;
        out[stride + k] = even1 + odd1;
        out[2 * stride + k] = even1 - odd1;
        out[3 * stride + k] = even2 + odd2;
        out[4 * stride + k] = even2 - odd2;
        out[5 * stride + k] = g3;
      }
    }
  }
}

REDLINE_SIMD_CLONES void weight_taps(const float* taps, bool rotated, int64_t channels, float* to, int64_t stride) {
  constexpr float kSixth = 1.0f / 6.0f, kTwelfth = 1.0f / 12.0f, kTwentyFourth = 1.0f / 24.0f;
  const int64_t first = rotated ? 8 * channels : 0, step = rotated ? -channels : channels;
  for (int64_t c = 0; c < channels; c += kLanes) {
    float mid[6][3][kLanes];
    for (int64_t j = 0; j < 3; ++j) {
      const float *w0 = taps + first + j * step + c, *w1 = w0 + 3 * step, *w2 = w1 + 3 * step;
      for (int64_t k = 0; k < kLanes; ++k) {
        const float ends = w0[k] + w2[k], far = w0[k] * kTwentyFourth + w2[k] * kSixth;
        mid[0][j][k] = 0.25f * w0[k];
        mid[1][j][k] = -kSixth * (ends + w1[k]);
        mid[2][j][k] = -kSixth * (ends - w1[k]);
        mid[3][j][k] = far + kTwelfth * w1[k];
        mid[4][j][k] = far - kTwelfth * w1[k];
        mid[5][j][k] = w2[k];
      }
    }
    for (int64_t i = 0; i < 6; ++i) {
      float* out = to + 6 * i * stride + c;
      for (int64_t k = 0; k < kLanes; ++k) {
        const float w0 = mid[i][0][k], w1 = mid[i][1][k], w2 = mid[i][2][k];
        const float ends = w0 + w2, far = w0 * kTwentyFourth + w2 * kSixth;
        out[k] = 0.25f * w0;
        out[stride + k] = -kSixth * (ends + w1);
        out[2 * stride + k] = -kSixth * (ends - w1);
        out[3 * stride + k] = far + kTwelfth * w1;
        out[4 * stride + k] = far - kTwelfth * w1;
        out[5 * stride + k] = w2;
      }
    }
  }
}

REDLINE_SIMD_CLONES void weight_gradient_taps(const float* from, int64_t stride, int64_t channels, float* taps) {
  constexpr float kSixth = 1.0f / 6.0f, kTwelfth = 1.0f / 12.0f, kTwentyFourth = 1.0f / 24.0f;
  for (int64_t c = 0; c < channels; c += kLanes) {
    float mid[3][6][kLanes];
    for (int64_t j = 0; j < 6; ++j) {
      const float* u = from + j * stride + c;
      const int64_t row = 6 * stride;
      for (int64_t k = 0; k < kLanes; ++k) {
        const float sum1 = u[row + k] + u[2 * row + k], difference1 = u[row + k] - u[2 * row + k],
                    sum2 = u[3 * row + k] + u[4 * row + k], difference2 = u[3 * row + k] - u[4 * row + k];
        mid[0][j][k] = 0.25f * u[k] - kSixth * sum1 + kTwentyFourth * sum2;
        mid[1][j][k] = kTwelfth * difference2 - kSixth * difference1;
        mid[2][j][k] = kSixth * (sum2 - sum1) + u[5 * row + k];
      }
    }
    for (int64_t i = 0; i < 3; ++i) {
      float* out = taps + 3 * i * channels + c;
      for (int64_t k = 0; k < kLanes; ++k) {
        const float sum1 = mid[i][1][k] + mid[i][2][k], difference1 = mid[i][1][k] - mid[i][2][k],
                    sum2 = mid[i][3][k] + mid[i][4][k], difference2 = mid[i][3][k] - mid[i][4][k];
        out[k] = 0.25f * mid[i][0][k] - kSixth * sum1 + kTwentyFourth * sum2;
        out[channels + k] = kTwelfth * difference2 - kSixth * difference1;
        out[2 * channels + k] = kSixth * (sum2 - sum1) + mid[i][5][k];
      }
    }
  }
}

}  // namespace redline::models::lift_splat::winograd
