// C (+)= A B for the small matrices of attention (one head of one sequence): a register tile of 6 rows by two vectors,
// A read element by element at any strides (so a transposed A needs no copy), B row-major. Large products go to
// LibTorch; its call overhead and threading only hurt at this size.
#pragma once

#include "models/layers/simd.h"

namespace redline::models {

template <class T, int kRows, int kVectors, bool kAdd>
inline void gemm_tile(int64_t depth, const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t ldb, T* c,
                      int64_t ldc) {
  using simd::Vec;
  constexpr int64_t kLanes = simd::kLanes<T>;
  Vec<T> sum[kRows][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k, a += a_col, b += ldb) {
    Vec<T> line[kVectors];
    for (int v = 0; v < kVectors; ++v) line[v] = simd::load(b + v * kLanes);
    for (int m = 0; m < kRows; ++m) {
      const Vec<T> value = simd::broadcast(a[m * a_row]);
      for (int v = 0; v < kVectors; ++v) sum[m][v] += value * line[v];
    }
  }
  for (int m = 0; m < kRows; ++m)
    for (int v = 0; v < kVectors; ++v) {
      T* out = c + m * ldc + v * kLanes;
      simd::store(out, kAdd ? simd::load(out) + sum[m][v] : sum[m][v]);
    }
}

template <class T, int kVectors, bool kAdd>
inline void gemm_column(int64_t rows, int64_t depth, const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t ldb,
                        T* c, int64_t ldc) {
  int64_t m = 0;
  for (; m + 6 <= rows; m += 6)
    gemm_tile<T, 6, kVectors, kAdd>(depth, a + m * a_row, a_row, a_col, b, ldb, c + m * ldc, ldc);
  const T* rest = a + m * a_row;
  T* out = c + m * ldc;
  switch (rows - m) {
    case 5:
      return gemm_tile<T, 5, kVectors, kAdd>(depth, rest, a_row, a_col, b, ldb, out, ldc);
    case 4:
      return gemm_tile<T, 4, kVectors, kAdd>(depth, rest, a_row, a_col, b, ldb, out, ldc);
    case 3:
      return gemm_tile<T, 3, kVectors, kAdd>(depth, rest, a_row, a_col, b, ldb, out, ldc);
    case 2:
      return gemm_tile<T, 2, kVectors, kAdd>(depth, rest, a_row, a_col, b, ldb, out, ldc);
    case 1:
      return gemm_tile<T, 1, kVectors, kAdd>(depth, rest, a_row, a_col, b, ldb, out, ldc);
    default:
      return;
  }
}

// C[rows, columns] (+)= A[rows, depth] B[depth, columns]; A's element (m, k) is a[m * a_row + k * a_col]; columns is a
// multiple of the vector's lanes.
template <class T, bool kAdd>
inline void small_gemm(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t a_row, int64_t a_col,
                       const T* b, int64_t ldb, T* c, int64_t ldc) {
  constexpr int64_t kLanes = simd::kLanes<T>;
  int64_t n = 0;
  for (; n + 2 * kLanes <= columns; n += 2 * kLanes)
    gemm_column<T, 2, kAdd>(rows, depth, a, a_row, a_col, b + n, ldb, c + n, ldc);
  if (n < columns) gemm_column<T, 1, kAdd>(rows, depth, a, a_row, a_col, b + n, ldb, c + n, ldc);
}

}  // namespace redline::models
