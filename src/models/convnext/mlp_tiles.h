// How a block's rows are divided: tiles as high as their wide rows fit into the L2 cache.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "models/convnext/row_kernels.h"
#include "models/layers/panel_gemm.h"

namespace redline::models::convnext::panel_mlp {

inline constexpr int64_t kWideFloats = 1 << 17;  // of a tile
inline constexpr int64_t kUnit = 8;              // rows of a tile are a multiple of it

inline int64_t units(int64_t rows) { return (rows + kUnit - 1) / kUnit; }

// work(begin, end) over tiles of at most about kWideFloats / width rows, in whole units, a multiple of the threads.
template <class Work>
void for_tiles(int64_t num_rows, int64_t width, const Work& work) {
  const int64_t largest = std::clamp<int64_t>(kWideFloats / width / kUnit, 4, 16), all = units(num_rows);
  const int64_t threads = at::get_num_threads();
  int64_t tiles = (all + largest - 1) / largest;
  tiles = std::clamp<int64_t>((tiles + threads - 1) / threads * threads, 1, std::max<int64_t>(all, 1));
  at::parallel_for(0, tiles, 1, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t)
      work(all * t / tiles * kUnit, std::min(num_rows, all * (t + 1) / tiles * kUnit));
  });
}
// Rows of the largest tile that for_tiles() makes.
inline int64_t tile_rows(int64_t width) { return std::clamp<int64_t>(kWideFloats / width / kUnit, 4, 16) * kUnit; }

// Filled up with zeros to whole panels.
inline std::vector<float> padded(const float* values, int64_t count) {
  std::vector<float> out(static_cast<size_t>(panels::floats(1, count)), 0.0f);
  std::copy_n(values, count, out.data());
  return out;
}

inline rows::Factors from_row(rows::Factors factors, int64_t row) {
  factors.first_row += row;
  return factors;
}

}  // namespace redline::models::convnext::panel_mlp
