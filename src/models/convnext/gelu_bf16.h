// GELU and its derivative where the result is rounded to bfloat16: gelu.h with shorter polynomials, for |x| <= 4.5.
// Errors below 2e-5 for GELU (of the larger of 1 and |x|) and 6e-5 for the derivative, a twentieth of what rounding
// costs. Minimax fits made for this file.
#pragma once

#include "models/convnext/gelu.h"

namespace redline::models::convnext {

inline constexpr float kShortGeluEdge = 4.5f;

template <class T>
struct ShortGeluPoint {
  REDLINE_GELU explicit ShortGeluPoint(const T& at) {
    const T edge = kShortGeluEdge - T{};
    low = at < -edge ? -edge : at;
    x = low > edge ? edge : low;
    s = x * x * (2.0f / (kShortGeluEdge * kShortGeluEdge)) - 1.0f;
  }
  T low;  // max(at, -4.5)
  T x, s;
};

template <class T>
REDLINE_GELU void gelu_value(const ShortGeluPoint<T>& p, T& value) {
  T y = 4.203331769e-03f * p.s - 1.003261142e-02f;
  y = y * p.s + 1.098119929e-02f;
  y = y * p.s - 1.579805018e-02f;
  y = y * p.s + 2.814689149e-02f;
  y = y * p.s - 4.090368334e-02f;
  y = y * p.s + 5.475579893e-02f;
  y = y * p.s - 7.714182960e-02f;
  y = y * p.s + 1.569030922e-01f;
  value = p.low * (p.x * y + 0.5f);
}

template <class T>
REDLINE_GELU void gelu_slope(const ShortGeluPoint<T>& p, T& slope) {
  T y = -2.472344017e-02f * p.s + 5.596709618e-02f;
  y = y * p.s - 4.548346728e-02f;
  y = y * p.s + 4.773261658e-02f;
  y = y * p.s - 8.775818935e-02f;
  y = y * p.s + 1.050389961e-01f;
  y = y * p.s - 9.536765160e-02f;
  y = y * p.s + 8.618592349e-02f;
  y = y * p.s - 8.992300138e-02f;
  y = y * p.s + 1.594457563e-01f;
  slope = p.x * y + 0.5f;
}

}  // namespace redline::models::convnext
