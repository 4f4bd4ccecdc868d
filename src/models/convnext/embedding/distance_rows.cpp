#include "models/convnext/embedding/distance_rows.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "models/layers/simd_clones.h"

namespace redline::models::embedding {

namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;  // of each thread

REDLINE_SIMD_CLONES double squared_norm(const double* row, int64_t n) {
  double parts[8] = {}, sum = 0.0;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int64_t l = 0; l < 8; ++l) parts[l] += row[i + l] * row[i + l];
  for (; i < n; ++i) sum += row[i] * row[i];
  for (const double part : parts) sum += part;
  return sum;
}

// products[j] of one row become squared distances. `coarse` cuts off the last bits: a product rounds by where it falls
// in its tiles, and two equal points must not differ in their distance.
REDLINE_SIMD_CLONES void square_distances(double norm, const double* norms, double coarse, double* products,
                                          int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    const double squared = (norm + norms[j] - 2.0 * products[j] + coarse) - coarse;
    products[j] = squared > 0.0 ? squared : 0.0;
  }
}

}  // namespace

void for_distance_rows(const torch::Tensor& vectors, const std::function<void(int64_t, std::span<const double>)>& use) {
  REDLINE_CHECK(vectors.is_contiguous() && vectors.scalar_type() == torch::kFloat64, "rows of doubles, side by side");
  const int64_t n = vectors.size(0);
  if (n == 0) return;
  const torch::NoGradGuard no_grad;
  const torch::Tensor across = vectors.t();
  torch::Tensor norms = torch::empty({n}, torch::kFloat64);  // without a copy of all squares
  for (int64_t row = 0; row < n; ++row)
    norms.mutable_data_ptr<double>()[row] =
        squared_norm(vectors.const_data_ptr<double>() + row * vectors.size(1), vectors.size(1));
  const double* norm = norms.const_data_ptr<double>();
  // Adding and taking away 1.5 * 2^52 steps rounds to whole steps; a step is 2^-42 of the largest squared norm.
  const double coarse = std::ldexp(1.5, 10 + std::ilogb(std::max(1e-300, norms.max().item<double>())));
  const int64_t rows = std::clamp<int64_t>(kBlockBytes / (8 * n), 8, 128), blocks = (n + rows - 1) / rows;
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    const torch::NoGradGuard no_grad_here;
    torch::Tensor buffer = torch::empty({rows, n}, torch::kFloat64);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * rows, count = std::min(rows, n - first);
      torch::Tensor part = buffer.narrow(0, 0, count);
      at::mm_out(part, vectors.narrow(0, first, count), across);
      auto* data = part.mutable_data_ptr<double>();
      for (int64_t r = 0; r < count; ++r) {
        square_distances(norm[first + r], norm, coarse, data + r * n, n);
        data[r * n + first + r] = 0.0;
      }
      part.sqrt_();
      for (int64_t r = 0; r < count; ++r) use(first + r, {data + r * n, static_cast<size_t>(n)});
    }
  });
}

}  // namespace redline::models::embedding
