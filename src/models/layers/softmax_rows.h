// The two passes of a softmax over one row in memory.
#pragma once

#include "models/layers/simd.h"

namespace redline::models {

// exp(row - top) over `count` entries, zeros up to `padded`; returns the sum.
template <class T>
inline T exp_row(T* row, int64_t count, int64_t padded, T top) {
  simd::Vec<T> sum{};
  int64_t j = 0;
  for (; j + simd::kLanes<T> <= count; j += simd::kLanes<T>) {
    const simd::Vec<T> e = simd::exp(simd::load(row + j) - top);
    simd::store(row + j, e);
    sum += e;
  }
  T total = simd::sum_lanes<T>(sum);
  if (j < count) {
    const int64_t whole = j;
    const simd::Vec<T> e = simd::exp(simd::load(row + j) - top);
    simd::store(row + j, e);
    for (j = whole; j < count; ++j) total += row[j];
  }
  for (j = count; j < padded; ++j) row[j] = T(0);
  return total;
}

template <class T>
inline T max_row(const T* row, int64_t count) {
  int64_t j = 0;
  T top = row[0];
  if (count >= simd::kLanes<T>) {
    simd::Vec<T> best = simd::load(row);
    for (j = simd::kLanes<T>; j + simd::kLanes<T> <= count; j += simd::kLanes<T>) {
      const simd::Vec<T> next = simd::load(row + j);
      best = simd::select<T>(next > best, next, best);
    }
    top = simd::max_lanes<T>(best);
  }
  for (; j < count; ++j) top = row[j] > top ? row[j] : top;
  return top;
}

}  // namespace redline::models
