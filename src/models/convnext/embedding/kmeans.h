// k-means, for NMI: greedy k-means++ (Arthur & Vassilvitskii 2007, the best of 2 + ln k candidates for each centre),
// then Lloyd's iterations; the best of several starts by the sum of squared distances. All draws are keyed by the seed,
// and sums are taken cluster by cluster, so the result does not depend on threads.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace redline::models::embedding {

struct KMeansOptions {
  int64_t clusters = 2;
  int64_t restarts = 3;
  int64_t most_iterations = 100;
  double tolerance = 1e-4;  // of the centres' squared movement, relative to the mean variance of a column
  uint64_t seed = 0;
};

struct Clustering {
  std::vector<int64_t> assignment;
  torch::Tensor centres;  // [k, d] float32
  double inertia = 0.0;   // sum of squared distances to the centres
  int64_t iterations = 0;
};

// `vectors` is [n, d] float32, contiguous. Throws DataError when there are fewer rows than clusters.
Clustering kmeans(const torch::Tensor& vectors, const KMeansOptions& options);

}  // namespace redline::models::embedding
