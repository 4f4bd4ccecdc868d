// Products of operands rounded to bfloat16, sums in float, for processors that multiply pairs of them (AVX512-BF16: two
// products of two for each lane). Everything that is read again lies in panels of pairs: a matrix [rows, columns] as
// [columns / 32][rows / 2][32][2], an odd last row and the last panel filled with zeros. In this form a matrix is a
// right operand and a left operand transposed; a left operand as it is lies row by row, so that a pair along the depth
// is one word. The results and what comes after a product are as in panel_gemm.h: the same functors take the tiles.
//
// A plain way of the same products stands beside the units', for machines without them and for the tests.
#pragma once

#include "models/layers/panel_gemm.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define REDLINE_BF16_UNITS 1
#define REDLINE_BF16_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#include <immintrin.h>
#else
#define REDLINE_BF16_UNITS 0
#define REDLINE_BF16_TARGET
#endif

namespace redline::models::bf16_panels {

using panels::count;
using panels::kPanel;
using panels::LaneVec;
using panels::TilePlace;

using Bf16 = uint16_t;  // the upper half of a float's bits
inline constexpr int kLanes = 16;
inline constexpr int64_t kPairLine = 2 * kPanel;  // of a pair of rows in a panel

inline int64_t pairs(int64_t depth) { return (depth + 1) / 2; }
// Elements of a matrix in panels; of a row as a left operand (its length made even).
inline int64_t size(int64_t depth, int64_t columns) { return pairs(depth) * count(columns) * kPairLine; }
inline int64_t line(int64_t depth) { return 2 * pairs(depth); }

// To the nearest, ties to even; what is not a number stays one.
inline Bf16 rounded(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (value != value) return static_cast<Bf16>((bits >> 16) | 0x40u);
  return static_cast<Bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline float widened(Bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float out;
  std::memcpy(&out, &bits, sizeof(out));
  return out;
}

// The same for sixteen lanes, in the compiler's vector types, for what a finished tile is given to: bits with the
// rounded number in their upper halves, and what is stored of them.
typedef uint32_t WordVec __attribute__((vector_size(64)));
typedef uint16_t HalfVec __attribute__((vector_size(32)));
REDLINE_TILE void round_lanes(const LaneVec<kLanes>& x, WordVec& bits) {
  std::memcpy(&bits, &x, sizeof(bits));
  const WordVec nearest = bits + 0x7fffu + ((bits >> 16) & 1u);
  bits = x == x ? nearest : bits | 0x400000u;
}
REDLINE_TILE void store_rounded(const WordVec& bits, Bf16* to) {
  const HalfVec halves = __builtin_convertvector(bits >> 16, HalfVec);
  std::memcpy(to, &halves, sizeof(halves));
}
// Two rows as a line of pairs.
REDLINE_TILE void store_pairs(const WordVec& above, const WordVec& below, Bf16* to) {
  const WordVec both = (above >> 16) | (below & 0xffff0000u);
  std::memcpy(to, &both, sizeof(both));
}
REDLINE_TILE void load_widened(const Bf16* from, LaneVec<kLanes>& x) {
  HalfVec halves;
  std::memcpy(&halves, from, sizeof(halves));
  const WordVec bits = __builtin_convertvector(halves, WordVec) << 16;
  std::memcpy(&x, &bits, sizeof(x));
}

// Where a left operand's pair lies: row by row (`step` from row to row, one pair from depth to depth), or in panels
// transposed (one pair from row to row, `step` from depth to depth).
struct Left {
  const Bf16* data;
  int64_t step;
};

// A right operand in panels, each with room for `panel_pairs` pairs of rows; a product may use fewer. `columns` are
// real.
struct Right {
  const Bf16* data;
  int64_t panel_pairs, columns;
  const Bf16* panel(int64_t index) const { return data + index * panel_pairs * kPairLine; }
};

#if REDLINE_BF16_UNITS
// kHalf: only the panel's first sixteen columns are real; the other sums stay zero.
template <int kRows, bool kTransposed, bool kHalf, class Finish>
REDLINE_BF16_TARGET REDLINE_TILE void tile(const Left& left, int64_t depth_pairs, const Bf16* b, const TilePlace& place,
                                           const Finish& finish) {
  __m512 sums[kRows][2];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
  const Bf16* a = left.data;
  for (int64_t p = 0; p < depth_pairs; ++p) {
    const __m512i first = _mm512_loadu_si512(b), second = kHalf ? first : _mm512_loadu_si512(b + kPanel);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      int pair;
      std::memcpy(&pair, a + (kTransposed ? 2 * i : i * left.step), sizeof(pair));
      const __m512i value = _mm512_set1_epi32(pair);
      sums[i][0] = _mm512_dpbf16_ps(sums[i][0], reinterpret_cast<__m512bh>(value), reinterpret_cast<__m512bh>(first));
      if (!kHalf)
        sums[i][1] =
            _mm512_dpbf16_ps(sums[i][1], reinterpret_cast<__m512bh>(value), reinterpret_cast<__m512bh>(second));
    }
    a += kTransposed ? left.step : 2;
    b += kPairLine;
  }
  const auto& out = reinterpret_cast<const LaneVec<kLanes>(&)[kRows][2]>(sums);
  finish.template operator()<kLanes, kRows>(place, out);
}

template <bool kTransposed, bool kHalf, class Finish>
REDLINE_BF16_TARGET REDLINE_TILE void column_of_tiles(int64_t rows, Left left, int64_t depth_pairs, const Bf16* b,
                                                      TilePlace place, const Finish& finish) {
  const int64_t step = kTransposed ? 2 : left.step;
  for (; rows >= 8; rows -= 8, left.data += 8 * step, place.row += 8)
    tile<8, kTransposed, kHalf>(left, depth_pairs, b, place, finish);
  if (rows & 4) {
    tile<4, kTransposed, kHalf>(left, depth_pairs, b, place, finish);
    left.data += 4 * step;
    place.row += 4;
  }
  if (rows & 2) {
    tile<2, kTransposed, kHalf>(left, depth_pairs, b, place, finish);
    left.data += 2 * step;
    place.row += 2;
  }
  if (rows & 1) tile<1, kTransposed, kHalf>(left, depth_pairs, b, place, finish);
}
#endif

// Row by row, each pair widened: what the units do, one lane at a time.
template <bool kTransposed, class Finish>
inline void column_of_rows(int64_t rows, const Left& left, int64_t depth_pairs, const Bf16* b, TilePlace place,
                           const Finish& finish) {
  for (int64_t i = 0; i < rows; ++i, ++place.row) {
    alignas(64) float sums[kPanel] = {};
    const Bf16* a = left.data + (kTransposed ? 2 * i : i * left.step);
    for (int64_t p = 0; p < depth_pairs; ++p, a += kTransposed ? left.step : 2)
      for (int64_t c = 0; c < kPanel; ++c)
        sums[c] +=
            widened(a[0]) * widened(b[p * kPairLine + 2 * c]) + widened(a[1]) * widened(b[p * kPairLine + 2 * c + 1]);
    LaneVec<kLanes> out[1][2];
    std::memcpy(out, sums, sizeof(out));
    finish.template operator()<kLanes, 1>(place, out);
  }
}

// The same two products by the units (inside a function of REDLINE_BF16_TARGET) and plainly.
//
// product: rows [0, rows) of the left operand times panels [first, last) of a right operand, of which `depth` rows are
// used. transposed_product: panels [left_first, left_last) of a matrix, transposed, times panels [first, last) of
// another; of both `depth_pairs` pairs are used.
struct TransposedPlaces {
  int64_t depth_pairs;
  Right left, right;  // the left one has a right operand's form too
};

#if REDLINE_BF16_UNITS
template <class Finish>
REDLINE_BF16_TARGET REDLINE_TILE void product(int64_t rows, int64_t depth, const Left& left, const Right& right,
                                              int64_t first, int64_t last, const Finish& finish) {
  for (int64_t panel = first; panel < last; ++panel)
    if (right.columns - panel * kPanel > kLanes)
      column_of_tiles<false, false>(rows, left, pairs(depth), right.panel(panel), {0, panel, 0}, finish);
    else
      column_of_tiles<false, true>(rows, left, pairs(depth), right.panel(panel), {0, panel, 0}, finish);
}
template <class Finish>
REDLINE_BF16_TARGET REDLINE_TILE void transposed_product(const TransposedPlaces& at, int64_t left_first,
                                                         int64_t left_last, int64_t first, int64_t last,
                                                         const Finish& finish) {
  for (int64_t group = left_first; group < left_last; ++group)
    for (int64_t panel = first; panel < last; ++panel)
      if (at.right.columns - panel * kPanel > kLanes)
        column_of_tiles<true, false>(std::min(kPanel, at.left.columns - group * kPanel),
                                     {at.left.panel(group), kPairLine}, at.depth_pairs, at.right.panel(panel),
                                     {group * kPanel, panel, 0}, finish);
      else
        column_of_tiles<true, true>(std::min(kPanel, at.left.columns - group * kPanel),
                                    {at.left.panel(group), kPairLine}, at.depth_pairs, at.right.panel(panel),
                                    {group * kPanel, panel, 0}, finish);
}
#endif
template <class Finish>
inline void product_plain(int64_t rows, int64_t depth, const Left& left, const Right& right, int64_t first,
                          int64_t last, const Finish& finish) {
  for (int64_t panel = first; panel < last; ++panel)
    column_of_rows<false>(rows, left, pairs(depth), right.panel(panel), {0, panel, 0}, finish);
}
template <class Finish>
inline void transposed_product_plain(const TransposedPlaces& at, int64_t left_first, int64_t left_last, int64_t first,
                                     int64_t last, const Finish& finish) {
  for (int64_t group = left_first; group < left_last; ++group)
    for (int64_t panel = first; panel < last; ++panel)
      column_of_rows<true>(std::min(kPanel, at.left.columns - group * kPanel), {at.left.panel(group), kPairLine},
                           at.depth_pairs, at.right.panel(panel), {group * kPanel, panel, 0}, finish);
}

// Rows as a left operand wants them: `line(columns)` elements each, an odd length filled with a zero.
void round_rows(const float* x, int64_t rows, int64_t columns, int64_t ld, Bf16* to);
void round_line(const float* x, int64_t count, Bf16* to);
// The other way, for activations that were kept rounded.
void widen(const Bf16* x, int64_t count, float* to);

// x [rows, columns] into panels; pack_transposed: x^T. Panels [first, last) only, so that threads can share the work.
// A panel has room for `panel_pairs` pairs of rows. `rows` may be odd only at the end of the depth.
void pack(const float* x, int64_t rows, int64_t columns, int64_t ld, int64_t first, int64_t last, int64_t panel_pairs,
          Bf16* to);
void pack(const Bf16* x, int64_t rows, int64_t columns, int64_t ld, int64_t first, int64_t last, int64_t panel_pairs,
          Bf16* to);
void pack_transposed(const float* x, int64_t rows, int64_t columns, int64_t ld, int64_t first, int64_t last, Bf16* to);

// c [rows, right's columns] (+)= left [rows, depth] right; left row by row.
void multiply(int64_t rows, int64_t depth, const Left& left, const Right& right, bool add, float* c, int64_t ldc);
// The given panels of c [left's columns, right's columns] (+)= left^T right.
void multiply_transposed(const TransposedPlaces& at, bool add, float* c, int64_t ldc, int64_t left_first,
                         int64_t left_last, int64_t first, int64_t last);

// Whether the units are there and used: where not, other ways are faster than the plain one of these products.
bool units();
// Whether the processor has units for whole tiles of bfloat16 (AMX), which LibTorch's products use and these do not.
bool tile_units();
// For the tests: the plain way although there are units; products in panels although there are none.
enum class Way : uint8_t { kAsTheMachine, kPlain };
void use(Way way);
// Units, or the plain way asked for: products in bfloat16 shall come from here.
bool preferred();

}  // namespace redline::models::bf16_panels
