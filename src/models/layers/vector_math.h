// exp, log and sigmoid as straight-line float code that compilers vectorise inside a loop (libm's calls are not).
// Polynomials and range reduction after Cephes (Moshier, expf.c and logf.c); errors below 2 units in the last place
// over the ranges used here. Builtins instead of std's names: those are functions of their own options, see
// simd_clones.h.
#pragma once

#include <cstdint>

#include "models/layers/simd_clones.h"

namespace redline::models {

// Arguments beyond what float can hold saturate; NaN stays NaN.
REDLINE_VECTOR_MATH float fast_exp(float x) {
  x = x > 88.0f ? 88.0f : x;
  x = x < -87.0f ? -87.0f : x;
  const float n = __builtin_floorf(x * 1.44269504088896341f + 0.5f);
  x -= n * 0.693359375f;
  x -= n * -2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * x + 1.3981999507e-3f;
  y = y * x + 8.3334519073e-3f;
  y = y * x + 4.1665795894e-2f;
  y = y * x + 1.6666665459e-1f;
  y = y * x + 5.0000001201e-1f;
  y = y * (x * x) + x + 1.0f;
  const auto power = __builtin_bit_cast(float, (static_cast<int32_t>(n) + 127) << 23);
  return y * power;
}

// x > 0 and normal.
REDLINE_VECTOR_MATH float fast_log(float x) {
  const auto bits = __builtin_bit_cast(int32_t, x);
  // Mantissa in [sqrt(1/2), sqrt(2)): the offset moves the exponent's step from 1 to sqrt(1/2).
  const int32_t shifted = bits - 0x3f3504f3;
  const int32_t exponent = shifted >> 23;
  const auto e = static_cast<float>(exponent);
  const float m = __builtin_bit_cast(float, bits - (exponent << 23)) - 1.0f;
  const float z = m * m;
  float y = 7.0376836292e-2f;
  y = y * m - 1.1514610310e-1f;
  y = y * m + 1.1676998740e-1f;
  y = y * m - 1.2420140846e-1f;
  y = y * m + 1.4249322787e-1f;
  y = y * m - 1.6668057665e-1f;
  y = y * m + 2.0000714765e-1f;
  y = y * m - 2.4999993993e-1f;
  y = y * m + 3.3333331174e-1f;
  y = y * m * z;
  y += e * -2.12194440e-4f;
  y -= 0.5f * z;
  return m + y + e * 0.693359375f;
}

REDLINE_VECTOR_MATH float fast_sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

}  // namespace redline::models
