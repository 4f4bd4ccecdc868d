// GELU and its derivative as straight-line code that vectorises: the normal distribution function is 1/2 plus an odd
// polynomial, so neither exp nor a division is needed, and between the two narrow products of a block that counts.
// Coefficients: minimax fits over |x| <= 5.5 in s = 2 (x / 5.5)^2 - 1 (made for this file); absolute errors in float
// below 9e-7 for GELU and 5e-7 for the derivative. Beyond 5.5 both stay at their limits.
#pragma once

#include "models/layers/simd_clones.h"

namespace redline::models::convnext {

inline constexpr float kGeluEdge = 5.5f;

struct GeluPoint {
  float low;  // max(x, -5.5)
  float x, s;
};

REDLINE_VECTOR_MATH GeluPoint gelu_point(float x) {
  GeluPoint p;
  p.low = x < -kGeluEdge ? -kGeluEdge : x;
  p.x = p.low > kGeluEdge ? kGeluEdge : p.low;
  p.s = p.x * p.x * (2.0f / (kGeluEdge * kGeluEdge)) - 1.0f;
  return p;
}

REDLINE_VECTOR_MATH float gelu_value(const GeluPoint& p) {
  float y = 5.566669976e-04f;
  y = y * p.s - 1.384885366e-03f;
  y = y * p.s + 9.699441319e-04f;
  y = y * p.s - 1.184238502e-03f;
  y = y * p.s + 4.296519813e-03f;
  y = y * p.s - 7.722972911e-03f;
  y = y * p.s + 1.043620388e-02f;
  y = y * p.s - 1.464689980e-02f;
  y = y * p.s + 2.029665105e-02f;
  y = y * p.s - 2.611839698e-02f;
  y = y * p.s + 3.208068746e-02f;
  y = y * p.s - 3.878666304e-02f;
  y = y * p.s + 4.773703458e-02f;
  y = y * p.s - 6.417249221e-02f;
  y = y * p.s + 1.285519363e-01f;
  return p.low * (p.x * y + 0.5f);
}

REDLINE_VECTOR_MATH float gelu_slope(const GeluPoint& p) {
  float y = -5.081956861e-03f;
  y = y * p.s + 1.226866061e-02f;
  y = y * p.s - 5.882778164e-03f;
  y = y * p.s + 3.646261950e-03f;
  y = y * p.s - 2.849483483e-02f;
  y = y * p.s + 5.010779842e-02f;
  y = y * p.s - 5.267203097e-02f;
  y = y * p.s + 6.034025924e-02f;
  y = y * p.s - 7.305255708e-02f;
  y = y * p.s + 7.542871792e-02f;
  y = y * p.s - 6.883598825e-02f;
  y = y * p.s + 6.017425878e-02f;
  y = y * p.s - 5.372723518e-02f;
  y = y * p.s + 5.367153436e-02f;
  y = y * p.s - 6.574011488e-02f;
  y = y * p.s + 1.287591628e-01f;
  return p.x * y + 0.5f;
}

}  // namespace redline::models::convnext
