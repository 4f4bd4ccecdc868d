// t-SNE (van der Maaten & Hinton 2008) to two dimensions, with scikit-learn's settings: attraction among the nearest
// 3 x perplexity neighbours, early exaggeration, gains. Repulsion is summed over all pairs and not by a tree: for the
// few thousand points that a picture can show this takes seconds, and the result does not depend on threads.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace redline::models::embedding {

struct TsneOptions {
  double perplexity = 30.0;  // lowered where there are fewer than three times as many points
  double exaggeration = 12.0;
  int64_t exaggerated_steps = 250, most_steps = 1000;
  double least_gradient = 1e-7;
  int64_t patience = 300;  // steps without progress, looked at every 50
};

// Attraction: p[e] between rows i and neighbour[e], for e in [begin[i], begin[i + 1]); symmetric, sums to 1.
struct Affinities {
  std::vector<int64_t> begin, neighbour;
  std::vector<float> p;
};

struct TsneResult {
  torch::Tensor points;  // [n, 2] float64
  double divergence = 0.0;
  int64_t steps = 0;
};

Affinities tsne_affinities(const torch::Tensor& vectors, double perplexity);
// Gradient of the divergence at points x[n], y[n]; the divergence itself is given when asked for.
void tsne_gradient(const Affinities& affinities, const std::vector<float>& x, const std::vector<float>& y,
                   double exaggeration, std::vector<float>& gradient_x, std::vector<float>& gradient_y,
                   double* divergence = nullptr);

// `vectors` is [n, d] with n at least 4.
TsneResult tsne(const torch::Tensor& vectors, const TsneOptions& options = {});

}  // namespace redline::models::embedding
