// GELU and its derivative as straight-line code that vectorises: the normal distribution function is 1/2 plus an odd
// polynomial, so neither exp nor a division is needed, and between the two narrow products of a block that counts.
// Coefficients: minimax fits over |x| <= 5.5 in s = 2 (x / 5.5)^2 - 1 (made for this file); absolute errors in float
// below 9e-7 for GELU and 5e-7 for the derivative. Beyond 5.5 both stay at their limits. T is float, in loops that the
// compiler vectorises, or one of its vector types.
#pragma once

// Not REDLINE_VECTOR_MATH: a function with options of its own is not inlined into one for other vectors.
#define REDLINE_GELU __attribute__((always_inline)) inline

namespace redline::models::convnext {

inline constexpr float kGeluEdge = 5.5f;

// Where both are wanted. Vectors are handed over by reference: by value they would be an ABI of their own.
template <class T>
struct GeluPoint {
  REDLINE_GELU explicit GeluPoint(const T& at) {
    const T edge = kGeluEdge - T{};
    low = at < -edge ? -edge : at;
    x = low > edge ? edge : low;
    s = x * x * (2.0f / (kGeluEdge * kGeluEdge)) - 1.0f;
  }
  T low;  // max(at, -5.5)
  T x, s;
};

template <class T>
REDLINE_GELU void gelu_value(const GeluPoint<T>& p, T& value) {
  T y = 5.566669976e-04f * p.s - 1.384885366e-03f;
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
  value = p.low * (p.x * y + 0.5f);
}

template <class T>
REDLINE_GELU void gelu_slope(const GeluPoint<T>& p, T& slope) {
  T y = -5.081956861e-03f * p.s + 1.226866061e-02f;
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
  slope = p.x * y + 0.5f;
}

}  // namespace redline::models::convnext
