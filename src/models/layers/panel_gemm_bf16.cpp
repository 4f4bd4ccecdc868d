#include "models/layers/panel_gemm_bf16.h"

#include <atomic>
#include <vector>

#include "device/low_products.h"

namespace redline::models::bf16_panels {

namespace {

std::atomic<Way> chosen_way{Way::kAsTheMachine};

bool has_units() {
#if REDLINE_BF16_UNITS
  return __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
#else
  return false;
#endif
}

// Writes or adds tiles to a row-major matrix of `columns` columns. Widths such as 176 end with half a panel, so a whole
// vector before the end is stored as one.
template <bool kAdd>
struct StoreSums {
  float* to;
  int64_t ld, columns;
  template <int kLanes, int kRows>
  REDLINE_TILE void operator()(const TilePlace& place, const LaneVec<kLanes> (&sums)[kRows][2]) const {
    const int64_t column = place.panel * kPanel;
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const int64_t real = columns - column - v * kLanes;
      float* out = to + place.row * ld + column + v * kLanes;
      if (real >= kLanes) {
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          LaneVec<kLanes> value = sums[i][v];
          if (kAdd) {
            LaneVec<kLanes> before;
            panels::load(out + i * ld, before);
            value += before;
          }
          panels::store(value, out + i * ld);
        }
      } else if (real > 0) {
        float part[kLanes];
        for (int i = 0; i < kRows; ++i) {
          panels::store(sums[i][v], part);
          for (int64_t c = 0; c < real; ++c) out[i * ld + c] = part[c] + (kAdd ? out[i * ld + c] : 0.0f);
        }
      }
    }
  }
};

#if REDLINE_BF16_UNITS
// What is below the smallest normal number becomes 0 here, and stays in the plain way; sums notice neither.
REDLINE_BF16_TARGET void round_by_units(const float* x, int64_t count, Bf16* to) {
  int64_t c = 0;
  for (; c + 32 <= count; c += 32) {
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + c + 16), _mm512_loadu_ps(x + c));
    std::memcpy(to + c, &both, sizeof(both));
  }
  for (; c < count; c += 16) {
    const auto real = static_cast<__mmask16>(count - c >= 16 ? 0xffffu : (1u << (count - c)) - 1u);
    const __m256bh half = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(real, x + c));
    __m256i words;
    std::memcpy(&words, &half, sizeof(words));
    _mm256_mask_storeu_epi16(to + c, real, words);
  }
}

// Word i of both halves side by side.
alignas(64) constexpr Bf16 kInterleave[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                              8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};

// Two rows of one panel, `width` real columns; `second` may be null (a row of zeros).
REDLINE_BF16_TARGET REDLINE_TILE void pair_line(const float* first, const float* second, int64_t width, Bf16* to) {
  const __m512i order = _mm512_load_si512(kInterleave);
  for (int64_t half = 0; half < 2; ++half, width -= 16) {
    const auto real = static_cast<__mmask16>(width >= 16  ? 0xffffu
                                             : width <= 0 ? 0u
                                                          : (1u << static_cast<unsigned>(width)) - 1u);
    const __m512 above = _mm512_maskz_loadu_ps(real, first + half * 16);
    const __m512 below = second != nullptr ? _mm512_maskz_loadu_ps(real, second + half * 16) : _mm512_setzero_ps();
    const __m512bh both = _mm512_cvtne2ps_pbh(below, above);
    __m512i words;
    std::memcpy(&words, &both, sizeof(words));
    _mm512_storeu_si512(to + half * 32, _mm512_permutexvar_epi16(order, words));
  }
}
REDLINE_BF16_TARGET REDLINE_TILE void pair_line(const Bf16* first, const Bf16* second, int64_t width, Bf16* to) {
  const __m512i order = _mm512_load_si512(kInterleave);
  for (int64_t half = 0; half < 2; ++half, width -= 16) {
    const auto real = static_cast<__mmask16>(width >= 16  ? 0xffffu
                                             : width <= 0 ? 0u
                                                          : (1u << static_cast<unsigned>(width)) - 1u);
    const __m256i above = _mm256_maskz_loadu_epi16(real, first + half * 16);
    const __m256i below = second != nullptr ? _mm256_maskz_loadu_epi16(real, second + half * 16) : __m256i{};
    const __m512i both = _mm512_maskz_inserti64x4(0xff, _mm512_castsi256_si512(above), below, 1);
    _mm512_storeu_si512(to + half * 32, _mm512_permutexvar_epi16(order, both));
  }
}

template <class T>
REDLINE_BF16_TARGET void pack_by_units(const T* x, int64_t rows, int64_t columns, int64_t ld, int64_t first,
                                       int64_t last, int64_t panel_pairs, Bf16* to) {
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t width = std::min(kPanel, columns - panel * kPanel);
    const T* from = x + panel * kPanel;
    Bf16* out = to + panel * panel_pairs * kPairLine;
    for (int64_t r = 0; r < rows; r += 2, from += 2 * ld, out += kPairLine)
      pair_line(from, r + 1 < rows ? from + ld : nullptr, width, out);
  }
}

REDLINE_BF16_TARGET void multiply_by_units(int64_t rows, int64_t depth, const Left& left, const Right& right, bool add,
                                           float* c, int64_t ldc) {
  if (add)
    product(rows, depth, left, right, 0, count(right.columns), StoreSums<true>{c, ldc, right.columns});
  else
    product(rows, depth, left, right, 0, count(right.columns), StoreSums<false>{c, ldc, right.columns});
}
REDLINE_BF16_TARGET void transposed_by_units(const TransposedPlaces& at, bool add, float* c, int64_t ldc,
                                             int64_t left_first, int64_t left_last, int64_t first, int64_t last) {
  if (add)
    transposed_product(at, left_first, left_last, first, last, StoreSums<true>{c, ldc, at.right.columns});
  else
    transposed_product(at, left_first, left_last, first, last, StoreSums<false>{c, ldc, at.right.columns});
}
#endif

Bf16 as_bf16(float value) { return rounded(value); }
Bf16 as_bf16(Bf16 value) { return value; }

template <class T>
void pack_plain(const T* x, int64_t rows, int64_t columns, int64_t ld, int64_t first, int64_t last, int64_t panel_pairs,
                Bf16* to) {
  for (int64_t panel = first; panel < last; ++panel)
    for (int64_t r = 0; r < line(rows); ++r)
      for (int64_t c = 0; c < kPanel; ++c) {
        const int64_t column = panel * kPanel + c;
        to[panel * panel_pairs * kPairLine + r / 2 * kPairLine + 2 * c + r % 2] =
            r < rows && column < columns ? as_bf16(x[r * ld + column]) : Bf16{0};
      }
}

template <class T>
void pack_any(const T* x, int64_t rows, int64_t columns, int64_t ld, int64_t first, int64_t last, int64_t panel_pairs,
              Bf16* to) {
#if REDLINE_BF16_UNITS
  if (units()) return pack_by_units(x, rows, columns, ld, first, last, panel_pairs, to);
#endif
  pack_plain(x, rows, columns, ld, first, last, panel_pairs, to);
}

}  // namespace

void use(Way way) { chosen_way = way; }
bool units() {
  static const bool has = has_units();
  return has && chosen_way.load(std::memory_order_relaxed) == Way::kAsTheMachine;
}
bool tile_units() {
#if REDLINE_BF16_UNITS
  static const bool has = __builtin_cpu_supports("amx-bf16") != 0;
  return has;
#else
  return false;
#endif
}
bool preferred() { return units() || chosen_way.load(std::memory_order_relaxed) == Way::kPlain; }

void round_line(const float* x, int64_t count, Bf16* to) {
#if REDLINE_BF16_UNITS
  if (units()) return round_by_units(x, count, to);
#endif
  for (int64_t c = 0; c < count; ++c) to[c] = rounded(x[c]);
}

void round_rows(const float* x, int64_t rows, int64_t columns, int64_t ld, Bf16* to) {
  const int64_t length = line(columns);
  if (ld == columns && length == columns) return round_line(x, rows * columns, to);
  for (int64_t r = 0; r < rows; ++r) {
    round_line(x + r * ld, columns, to + r * length);
    if (length != columns) to[r * length + columns] = 0;
  }
}

void widen(const Bf16* x, int64_t count, float* to) {
  for (int64_t c = 0; c < count; ++c) to[c] = widened(x[c]);
}

void pack(const float* x, int64_t rows, int64_t columns, int64_t ld, int64_t first, int64_t last, int64_t panel_pairs,
          Bf16* to) {
  pack_any(x, rows, columns, ld, first, last, panel_pairs, to);
}
void pack(const Bf16* x, int64_t rows, int64_t columns, int64_t ld, int64_t first, int64_t last, int64_t panel_pairs,
          Bf16* to) {
  pack_any(x, rows, columns, ld, first, last, panel_pairs, to);
}

// A pair along the columns is one word, so this is the floats' transposition, of words.
void pack_transposed(const float* x, int64_t rows, int64_t columns, int64_t ld, int64_t first, int64_t last, Bf16* to) {
  const int64_t words = pairs(columns);
  std::vector<float> lines(static_cast<size_t>(kPanel * words));
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t width = std::min(kPanel, rows - panel * kPanel);
    round_rows(x + panel * kPanel * ld, width, columns, ld, reinterpret_cast<Bf16*>(lines.data()));
    panels::pack_transposed(lines.data(), width, words, words, 0, 1,
                            reinterpret_cast<float*>(to + panel * words * kPairLine));
  }
}

void multiply(int64_t rows, int64_t depth, const Left& left, const Right& right, bool add, float* c, int64_t ldc) {
  const device::low_products::Timed timed;
#if REDLINE_BF16_UNITS
  if (units()) return multiply_by_units(rows, depth, left, right, add, c, ldc);
#endif
  if (add)
    product_plain(rows, depth, left, right, 0, count(right.columns), StoreSums<true>{c, ldc, right.columns});
  else
    product_plain(rows, depth, left, right, 0, count(right.columns), StoreSums<false>{c, ldc, right.columns});
}

void multiply_transposed(const TransposedPlaces& at, bool add, float* c, int64_t ldc, int64_t left_first,
                         int64_t left_last, int64_t first, int64_t last) {
  const device::low_products::Timed timed;
#if REDLINE_BF16_UNITS
  if (units()) return transposed_by_units(at, add, c, ldc, left_first, left_last, first, last);
#endif
  if (add)
    transposed_product_plain(at, left_first, left_last, first, last, StoreSums<true>{c, ldc, at.right.columns});
  else
    transposed_product_plain(at, left_first, left_last, first, last, StoreSums<false>{c, ldc, at.right.columns});
}

}  // namespace redline::models::bf16_panels
