// Euclidean distances from every row to all rows, a block of rows at a time: n x n of them never lie in memory at once.
// By |x|^2 + |y|^2 - 2 x y in double precision, so that a product of matrices does the work and 1e-6 of the plain
// formula holds also where points lie close together.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <span>

namespace redline::models::embedding {

// `vectors` is [n, d] float64, contiguous. Calls use(i, distances) once for every row, from several threads;
// distances[i] is 0. The blocks do not depend on the number of threads, so neither do the distances.
void for_distance_rows(const torch::Tensor& vectors,
                       const std::function<void(int64_t row, std::span<const double> distances)>& use);

}  // namespace redline::models::embedding
