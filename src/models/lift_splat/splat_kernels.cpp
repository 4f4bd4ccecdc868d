#include "models/lift_splat/splat_kernels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "models/layers/simd_clones.h"

namespace redline::models::lift_splat {

namespace {

constexpr int64_t kRun = 32;  // points summed in float before they go to the cell's double sums

// to[c] += weight * from[c].
REDLINE_SIMD_CLONES void add_scaled(const float* __restrict from, float weight, int64_t count, float* __restrict to) {
  for (int64_t c = 0; c < count; ++c) to[c] += weight * from[c];
}

// The dot product in sixteen interleaved sums: the same order with any vector width.
REDLINE_SIMD_CLONES float dot_rows(const float* __restrict a, const float* __restrict b, int64_t count) {
  float lanes[16] = {};
  int64_t c = 0;
  for (; c + 16 <= count; c += 16)
    for (int64_t k = 0; k < 16; ++k) lanes[k] += a[c + k] * b[c + k];
  float rest = 0.0f;
  for (; c < count; ++c) rest += a[c] * b[c];
  for (int64_t k = 0; k < 16; ++k) rest += lanes[k];
  return rest;
}

// Cells in stretches of about equal numbers of points; a cell is never divided.
void for_cells(const SplatIndex& index, const std::function<void(int64_t begin, int64_t end)>& work) {
  const int64_t cells = index.cells, total = index.begin[cells];
  const int64_t pieces = std::max<int64_t>(1, std::min<int64_t>(4 * at::get_num_threads(), total / 512));
  const auto edge = [&](int64_t piece) -> int64_t {
    if (piece <= 0) return 0;
    if (piece >= pieces) return cells;
    const auto wanted = static_cast<int32_t>(total * piece / pieces);
    return std::upper_bound(index.begin, index.begin + cells + 1, wanted) - index.begin - 1;
  };
  at::parallel_for(0, pieces, 1, [&](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece) work(edge(piece), edge(piece + 1));
  });
}

}  // namespace

torch::Tensor depth_chances(const torch::Tensor& camera, int64_t depths) {
  const int64_t rows = camera.size(0), width = camera.size(1);
  torch::Tensor out = torch::empty({rows, depths});
  const float* from = camera.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* logits = from + r * width;
      float* chances = to + r * depths;
      const float top = *std::max_element(logits, logits + depths);
      double sum = 0.0;
      for (int64_t d = 0; d < depths; ++d) sum += static_cast<double>(chances[d] = std::exp(logits[d] - top));
      const auto inverse = static_cast<float>(1.0 / sum);
      for (int64_t d = 0; d < depths; ++d) chances[d] *= inverse;
    }
  });
  return out;
}

torch::Tensor splat_forward(const torch::Tensor& rows, const torch::Tensor& chances, const SplatIndex& index) {
  const int64_t depths = index.depths, width = rows.size(1), features = width - depths;
  torch::Tensor out = torch::empty({index.cells, features});
  const float *from = rows.const_data_ptr<float>(), *chance = chances.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  for_cells(index, [&](int64_t begin, int64_t end) {
    std::vector<float> run(static_cast<size_t>(features));
    std::vector<double> sums(static_cast<size_t>(features));
    for (int64_t cell = begin; cell < end; ++cell) {
      const int64_t first = index.begin[cell], last = index.begin[cell + 1];
      float* line = to + cell * features;
      std::fill_n(line, features, 0.0f);
      const auto add_run = [&](int64_t a, int64_t b, float* sum) {
        for (int64_t i = a; i < b; ++i) {
          const int64_t point = index.points[i];
          add_scaled(from + point / depths * width + depths, chance[point], features, sum);
        }
      };
      if (last - first <= kRun) {
        add_run(first, last, line);
        continue;
      }
      std::fill(sums.begin(), sums.end(), 0.0);
      for (int64_t i = first; i < last; i += kRun) {
        std::fill(run.begin(), run.end(), 0.0f);
        add_run(i, std::min(last, i + kRun), run.data());
        for (int64_t c = 0; c < features; ++c)
          sums[static_cast<size_t>(c)] += static_cast<double>(run[static_cast<size_t>(c)]);
      }
      for (int64_t c = 0; c < features; ++c) line[c] = static_cast<float>(sums[static_cast<size_t>(c)]);
    }
  });
  return out;
}

torch::Tensor splat_backward(const torch::Tensor& grad, const torch::Tensor& rows, const torch::Tensor& chances,
                             const SplatIndex& index) {
  const int64_t depths = index.depths, width = rows.size(1), features = width - depths;
  torch::Tensor out = torch::empty_like(rows);
  const float *gp = grad.const_data_ptr<float>(), *cp = rows.const_data_ptr<float>(),
              *chance = chances.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, rows.size(0), 16, [&](int64_t begin, int64_t end) {
    std::vector<float> at_depth(static_cast<size_t>(depths));
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      const float *feature = cp + pixel * width + depths, *p = chance + pixel * depths;
      const int32_t* cell = index.cell_of + pixel * depths;
      float *gd = to + pixel * width, *gf = gd + depths;
      std::fill_n(gf, features, 0.0f);
      double mean = 0.0;
      for (int64_t d = 0; d < depths; ++d) {
        float gradient = 0.0f;
        if (cell[d] >= 0) {
          const float* row = gp + static_cast<int64_t>(cell[d]) * features;
          gradient = dot_rows(row, feature, features);
          add_scaled(row, p[d], features, gf);
        }
        at_depth[static_cast<size_t>(d)] = gradient;
        mean += static_cast<double>(p[d]) * static_cast<double>(gradient);
      }
      for (int64_t d = 0; d < depths; ++d) gd[d] = p[d] * (at_depth[static_cast<size_t>(d)] - static_cast<float>(mean));
    }
  });
  return out;
}

}  // namespace redline::models::lift_splat
