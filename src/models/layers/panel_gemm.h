// Float products of one thread in which everything that is read again lies in panels: a matrix [rows, columns] as
// [columns / 32][rows][32], the last panel filled with zeros. In this form a matrix is a right operand as it is, a left
// operand (a few rows, 32 columns at a time, in one kilobyte), and a left operand transposed, so activations are
// written once and serve all three products of a layer. The tile of 8 x 32 sums stays in registers, and what comes
// after a product (bias, activation, a derivative) is a functor that gets the tile while it is still there.
//
// Written with the compiler's vector types, once for sixteen lanes (AVX-512) and once for eight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define REDLINE_WIDE_TARGET __attribute__((target("avx512f")))
#else
#define REDLINE_WIDE_TARGET
#endif
#define REDLINE_TILE __attribute__((always_inline)) inline

namespace redline::models::panels {

inline constexpr int64_t kPanel = 32;  // columns of a panel
inline int64_t count(int64_t columns) { return (columns + kPanel - 1) / kPanel; }
inline int64_t floats(int64_t rows, int64_t columns) { return rows * count(columns) * kPanel; }

template <int kLanes>
struct Lanes;
template <>
struct Lanes<16> {
  typedef float type __attribute__((vector_size(64)));
  static constexpr int kRows = 8;  // of a register tile
};
template <>
struct Lanes<8> {
  typedef float type __attribute__((vector_size(32)));
  static constexpr int kRows = 6;
};
template <int kLanes>
using LaneVec = typename Lanes<kLanes>::type;
// From and to anywhere in memory. By reference: by value vectors would be an ABI of their own. Not a type with less
// alignment: the compiler drops that attribute from a type that depends on a template's argument.
template <class Vec>
REDLINE_TILE void load(const float* from, Vec& to) {
  std::memcpy(&to, from, sizeof(Vec));
}
template <class Vec>
REDLINE_TILE void store(const Vec& from, float* to) {
  std::memcpy(to, &from, sizeof(Vec));
}

// Where the left operand's element (row i, depth p) lies.
struct Left {
  const float* data;
  int64_t row;   // distance of rows; of depths when transposed
  int64_t jump;  // distance of 32 depths from the next 32; unused when transposed

  static Left row_major(const float* data, int64_t ld) { return {data, ld, kPanel}; }
  static Left in_panels(const float* data, int64_t rows) { return {data, kPanel, rows * kPanel}; }
};

// What a finished tile is given to: rows [row, row + kRows), and of panel `panel` the 2 kLanes columns from `column`.
struct TilePlace {
  int64_t row, panel, column;
};

// Two vectors of columns, kRows rows. `a` points at the tile's first element, `b` at the panel's rows.
template <int kLanes, int kRows, bool kTransposed, class Finish>
REDLINE_TILE void tile(const float* a, const Left& left, int64_t depth, const float* b, const TilePlace& place,
                       const Finish& finish) {
  typedef LaneVec<kLanes> Vec;
  Vec sums[kRows][2];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = Vec{};
  for (int64_t p = 0; p < depth;) {
    const int64_t end = kTransposed ? depth : std::min(depth, p + kPanel);
    const float* line = a;
    for (; p < end; ++p) {
      Vec columns[2];
      load(b, columns[0]);
      load(b + kLanes, columns[1]);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Vec value = (kTransposed ? line[i] : line[i * left.row]) - Vec{};
        sums[i][0] += value * columns[0];
        sums[i][1] += value * columns[1];
      }
      line += kTransposed ? left.row : 1;
      b += kPanel;
    }
    a += left.jump;
  }
  finish.template operator()<kLanes, kRows>(place, sums);
}

// Fewer rows than a full tile has: tiles of four, two and one.
template <int kLanes, bool kTransposed, class Finish>
REDLINE_TILE void rest_tiles(int64_t rows, const float* a, int64_t step, const Left& left, int64_t depth,
                             const float* b, TilePlace place, const Finish& finish) {
  if (rows & 4) {
    tile<kLanes, 4, kTransposed>(a, left, depth, b, place, finish);
    a += 4 * step;
    place.row += 4;
  }
  if (rows & 2) {
    tile<kLanes, 2, kTransposed>(a, left, depth, b, place, finish);
    a += 2 * step;
    place.row += 2;
  }
  if (rows & 1) tile<kLanes, 1, kTransposed>(a, left, depth, b, place, finish);
}

template <int kLanes, bool kTransposed, class Finish>
REDLINE_TILE void column_of_tiles(int64_t rows, const float* a, int64_t step, const Left& left, int64_t depth,
                                  const float* b, TilePlace place, const Finish& finish) {
  constexpr int64_t kRows = Lanes<kLanes>::kRows;
  for (; rows >= kRows; rows -= kRows, a += kRows * step, place.row += kRows)
    tile<kLanes, kRows, kTransposed>(a, left, depth, b, place, finish);
  rest_tiles<kLanes, kTransposed>(rows, a, step, left, depth, b, place, finish);
}

// Rows [0, rows) of the left operand times panels [first, last) of a right operand of `depth` rows.
template <int kLanes, class Finish>
REDLINE_TILE void product(int64_t rows, int64_t depth, const Left& left, const float* right, int64_t first,
                          int64_t last, const Finish& finish) {
  for (int64_t panel = first; panel < last; ++panel)
    for (int64_t column = 0; column < kPanel; column += 2 * kLanes)
      column_of_tiles<kLanes, false>(rows, left.data, left.row, left, depth, right + panel * depth * kPanel + column,
                                     {0, panel, column}, finish);
}

// Panels [left_first, left_last) of a matrix, transposed, times panels [first, last) of another, both of `depth` rows
// in use and `left_rows`, `right_rows` in all. `columns` of the left one exist; place.row counts them.
template <int kLanes, class Finish>
REDLINE_TILE void transposed_product(int64_t depth, const float* left, int64_t left_rows, int64_t columns,
                                     int64_t left_first, int64_t left_last, const float* right, int64_t right_rows,
                                     int64_t first, int64_t last, const Finish& finish) {
  for (int64_t group = left_first; group < left_last; ++group) {
    const float* a = left + group * left_rows * kPanel;
    const int64_t rows = std::min(kPanel, columns - group * kPanel);
    for (int64_t panel = first; panel < last; ++panel)
      for (int64_t column = 0; column < kPanel; column += 2 * kLanes)
        column_of_tiles<kLanes, true>(rows, a, 1, {a, kPanel, 0}, depth, right + panel * right_rows * kPanel + column,
                                      {group * kPanel, panel, column}, finish);
  }
}

// Writes or adds tiles to a row-major matrix of `columns` columns.
template <bool kAdd>
struct Store {
  float* to;
  int64_t ld, columns;
  template <int kLanes, int kRows>
  REDLINE_TILE void operator()(const TilePlace& place, const LaneVec<kLanes> (&sums)[kRows][2]) const {
    const int64_t column = place.panel * kPanel + place.column;
    float* line = to + place.row * ld + column;
    if (column + 2 * kLanes <= columns) {
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          float* out = line + i * ld + v * kLanes;
          LaneVec<kLanes> value = sums[i][v];
          if (kAdd) {
            LaneVec<kLanes> before;
            load(out, before);
            value += before;
          }
          store(value, out);
        }
      return;
    }
    float part[kRows][2 * kLanes];
    std::memcpy(part, sums, sizeof(part));
    for (int i = 0; i < kRows; ++i)
      for (int64_t c = 0; c < columns - column; ++c) line[i * ld + c] = part[i][c] + (kAdd ? line[i * ld + c] : 0.0f);
  }
};

// x [rows, columns] into panels; with `transposed`, x^T ([columns, rows] becomes [rows / 32][columns][32]). Panels
// [first, last) only, so that threads can share the work; each has `panel_rows` rows.
void pack(const float* x, int64_t rows, int64_t columns, int64_t ld, int64_t first, int64_t last, int64_t panel_rows,
          float* to);
void pack_transposed(const float* x, int64_t rows, int64_t columns, int64_t ld, int64_t first, int64_t last, float* to);

// c [rows, columns] (+)= left [rows, depth] right [depth, columns].
void multiply(int64_t rows, int64_t columns, int64_t depth, const Left& left, const float* right, bool add, float* c,
              int64_t ldc);
// The given panels of c (+)= left^T right, where left has `rows` columns.
struct TransposedJob {
  int64_t depth;
  const float* left;
  int64_t left_rows, rows;
  const float* right;
  int64_t right_rows, columns;
  bool add;
  float* c;
  int64_t ldc;
};
void multiply_transposed(const TransposedJob& job, int64_t left_first, int64_t left_last, int64_t first, int64_t last);

// Sixteen lanes here? Tests may ask for eight.
bool wide();
void use_narrow(bool on);
// Whether these products are to be preferred to the BLAS in LibTorch: on x86 they are within a few per cent of the
// processor's limit at every shape; elsewhere they are right but were never measured.
bool preferred();

}  // namespace redline::models::panels
