// Vectors of 32 bytes by the compiler's vector extension: one source for float and double, AVX2 where the build has it
// and plain code elsewhere. exp of floats is a polynomial (relative error below 3e-7), of doubles the library's.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace redline::models::simd {

template <class T>
struct VecOf;
template <>
struct VecOf<float> {
  typedef float type __attribute__((vector_size(32)));
  typedef int32_t ints __attribute__((vector_size(32)));
};
template <>
struct VecOf<double> {
  typedef double type __attribute__((vector_size(32)));
  typedef int64_t ints __attribute__((vector_size(32)));
};
template <class T>
using Vec = typename VecOf<T>::type;
template <class T>
inline constexpr int64_t kLanes = 32 / static_cast<int64_t>(sizeof(T));

template <class T>
inline Vec<T> load(const T* p) {
  Vec<T> v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
template <class T>
inline void store(T* p, Vec<T> v) {
  std::memcpy(p, &v, sizeof(v));
}
template <class T>
inline Vec<T> broadcast(T value) {
  return value - Vec<T>{};
}
template <class T>
inline Vec<T> select(typename VecOf<T>::ints condition, Vec<T> yes, Vec<T> no) {
  return condition ? yes : no;
}

template <class T>
inline T sum_lanes(Vec<T> v) {
  T total = 0;
  for (int64_t i = 0; i < kLanes<T>; ++i) total += v[i];
  return total;
}
template <class T>
inline T max_lanes(Vec<T> v) {
  T top = v[0];
  for (int64_t i = 1; i < kLanes<T>; ++i) top = v[i] > top ? v[i] : top;
  return top;
}

// exp by range reduction to [-ln2/2, ln2/2] and a polynomial of degree 6 (Taylor, the last terms nudged by the
// truncation being below one float ulp); arguments are clamped to the finite range, so exp(-inf) is 1e-38, not 0.
inline Vec<float> exp(Vec<float> x) {
  const Vec<float> low = broadcast(-87.0f), high = broadcast(88.0f);
  x = select<float>(x < low, low, x);
  x = select<float>(x > high, high, x);
  const Vec<float> magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to the nearest integer
  const Vec<float> shifted = x * 1.44269504088896341f + magic;
  const Vec<float> n = shifted - magic;
  const Vec<float> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vec<float> p = broadcast(1.0f / 720.0f);
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  typedef VecOf<float>::ints Ints;
  Ints bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits << 23) + (127 << 23);
  Vec<float> power;
  std::memcpy(&power, &bits, sizeof(power));
  return p * power;
}
inline Vec<double> exp(Vec<double> x) {
  for (int64_t i = 0; i < kLanes<double>; ++i) x[i] = std::exp(x[i]);
  return x;
}

// The normal distribution function and density at x: what GELU and its derivative need. Floats use the rational
// approximation of Abramowitz & Stegun 7.1.26 (absolute error of erf below 1.5e-7), which shares its exp with the
// density.
template <class T>
struct Normal {
  Vec<T> cdf, density;
};
inline Normal<float> normal(Vec<float> x) {
  const Vec<float> gauss = exp(x * x * -0.5f);  // e^{-x^2/2}
  const Vec<float> size = select<float>(x < broadcast(0.0f), -x, x) * 0.70710678118654752f;
  const Vec<float> t = 1.0f / (size * 0.3275911f + 1.0f);
  Vec<float> p = broadcast(1.061405429f);
  p = p * t + -1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t + -0.284496736f;
  p = p * t + 0.254829592f;
  const Vec<float> tail = p * t * gauss * 0.5f;  // 1 - cdf(|x|)
  return {select<float>(x < broadcast(0.0f), tail, 1.0f - tail), gauss * 0.39894228040143268f};
}
inline Normal<double> normal(Vec<double> x) {
  Normal<double> out;
  for (int64_t i = 0; i < kLanes<double>; ++i) {
    out.cdf[i] = 0.5 * std::erfc(-x[i] * 0.70710678118654752440);
    out.density[i] = 0.39894228040143267794 * std::exp(-0.5 * x[i] * x[i]);
  }
  return out;
}

inline int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace redline::models::simd
