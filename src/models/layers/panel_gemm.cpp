#include "models/layers/panel_gemm.h"

#include <atomic>

#include "device/low_products.h"

namespace redline::models::panels {

namespace {

std::atomic<bool> narrow_panels{false};

template <int kLanes>
REDLINE_TILE void multiply_of(int64_t rows, int64_t columns, int64_t depth, const Left& left, const float* right,
                              bool add, float* c, int64_t ldc) {
  if (add)
    product<kLanes>(rows, depth, left, right, 0, count(columns), Store<true>{c, ldc, columns});
  else
    product<kLanes>(rows, depth, left, right, 0, count(columns), Store<false>{c, ldc, columns});
}
template <int kLanes>
REDLINE_TILE void transposed_of(const TransposedJob& j, int64_t left_first, int64_t left_last, int64_t first,
                                int64_t last) {
  if (j.add)
    transposed_product<kLanes>(j.depth, j.left, j.left_rows, j.rows, left_first, left_last, j.right, j.right_rows,
                               first, last, Store<true>{j.c, j.ldc, j.columns});
  else
    transposed_product<kLanes>(j.depth, j.left, j.left_rows, j.rows, left_first, left_last, j.right, j.right_rows,
                               first, last, Store<false>{j.c, j.ldc, j.columns});
}

REDLINE_WIDE_TARGET void multiply_wide(int64_t rows, int64_t columns, int64_t depth, const Left& left,
                                       const float* right, bool add, float* c, int64_t ldc) {
  multiply_of<16>(rows, columns, depth, left, right, add, c, ldc);
}
void multiply_narrow(int64_t rows, int64_t columns, int64_t depth, const Left& left, const float* right, bool add,
                     float* c, int64_t ldc) {
  multiply_of<8>(rows, columns, depth, left, right, add, c, ldc);
}
REDLINE_WIDE_TARGET void transposed_wide(const TransposedJob& j, int64_t left_first, int64_t left_last, int64_t first,
                                         int64_t last) {
  transposed_of<16>(j, left_first, left_last, first, last);
}
void transposed_narrow(const TransposedJob& j, int64_t left_first, int64_t left_last, int64_t first, int64_t last) {
  transposed_of<8>(j, left_first, left_last, first, last);
}

constexpr int64_t kSquare = 4;

// Four rows of four, in registers; the result's rows are a panel's apart.
void transpose_square(const float* x, int64_t ld, float* to) {
  typedef float Four __attribute__((vector_size(16)));
  Four a, b, c, d;
  load(x, a);
  load(x + ld, b);
  load(x + 2 * ld, c);
  load(x + 3 * ld, d);
  const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Four first = __builtin_shufflevector(ab, cd, 0, 1, 4, 5), second = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  const Four third = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
             fourth = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
  store(first, to);
  store(second, to + kPanel);
  store(third, to + 2 * kPanel);
  store(fourth, to + 3 * kPanel);
}

bool has_wide() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  return __builtin_cpu_supports("avx512f") != 0;
#else
  return false;
#endif
}

}  // namespace

bool wide() {
  static const bool has = has_wide();
  return has && !narrow_panels.load(std::memory_order_relaxed);
}
void use_narrow(bool on) { narrow_panels = on; }

bool preferred() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  return true;
#else
  return false;
#endif
}

void pack(const float* x, int64_t rows, int64_t columns, int64_t ld, int64_t first, int64_t last, int64_t panel_rows,
          float* to) {
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t width = std::min(kPanel, columns - panel * kPanel);
    const float* from = x + panel * kPanel;
    float* out = to + panel * panel_rows * kPanel;
    for (int64_t r = 0; r < rows; ++r, from += ld, out += kPanel) {
      if (width == kPanel) {
        std::memcpy(out, from, kPanel * sizeof(float));
        continue;
      }
      std::memcpy(out, from, static_cast<size_t>(width) * sizeof(float));
      std::fill(out + width, out + kPanel, 0.0f);
    }
  }
}

void pack_transposed(const float* x, int64_t rows, int64_t columns, int64_t ld, int64_t first, int64_t last,
                     float* to) {
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t width = std::min(kPanel, rows - panel * kPanel);
    const float* from = x + panel * kPanel * ld;
    float* out = to + panel * columns * kPanel;
    int64_t c = 0;
    if (width == kPanel)
      for (; c + kSquare <= columns; c += kSquare)
        for (int64_t r = 0; r < kPanel; r += kSquare) transpose_square(from + r * ld + c, ld, out + c * kPanel + r);
    for (; c < columns; ++c) {  // as bytes: a word may also be a pair of rounded numbers (panel_gemm_bf16.cpp)
      for (int64_t r = 0; r < width; ++r) std::memcpy(out + c * kPanel + r, from + r * ld + c, sizeof(float));
      std::memset(out + c * kPanel + width, 0, static_cast<size_t>(kPanel - width) * sizeof(float));
    }
  }
}

void multiply(int64_t rows, int64_t columns, int64_t depth, const Left& left, const float* right, bool add, float* c,
              int64_t ldc) {
  const device::low_products::Timed timed(device::low_products::float_ns);
  wide() ? multiply_wide(rows, columns, depth, left, right, add, c, ldc)
         : multiply_narrow(rows, columns, depth, left, right, add, c, ldc);
}

void multiply_transposed(const TransposedJob& job, int64_t left_first, int64_t left_last, int64_t first, int64_t last) {
  const device::low_products::Timed timed(device::low_products::float_ns);
  wide() ? transposed_wide(job, left_first, left_last, first, last)
         : transposed_narrow(job, left_first, left_last, first, last);
}

}  // namespace redline::models::panels
