// Principal components, for pictures and as the start of t-SNE.
#pragma once

#include <torch/torch.h>

#include <vector>

namespace redline::models::embedding {

struct Projection {
  torch::Tensor points;           // [n, k] float64
  std::vector<double> explained;  // share of the variance that each component has
};

// `vectors` is [n, d], n at least 1; k components, of which those beyond d are zeros. A component's sign is free: it is
// fixed so that its largest loading is positive, and pictures of successive epochs do not flip over.
Projection principal_components(const torch::Tensor& vectors, int64_t k);

}  // namespace redline::models::embedding
