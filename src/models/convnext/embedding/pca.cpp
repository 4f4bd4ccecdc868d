#include "models/convnext/embedding/pca.h"

#include <algorithm>

namespace redline::models::embedding {

Projection principal_components(const torch::Tensor& vectors, int64_t k) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = vectors.to(torch::kCPU, torch::kFloat64), centred = x - x.mean(0);
  const auto [values, axes] = torch::linalg_eigh(centred.t().mm(centred));  // ascending
  const int64_t d = x.size(1);
  const double total = std::max(values.sum().item<double>(), 1e-300);
  Projection out;
  out.points = torch::zeros({x.size(0), k}, torch::kFloat64);
  out.explained.assign(static_cast<size_t>(k), 0.0);
  for (int64_t c = 0; c < std::min(k, d); ++c) {
    torch::Tensor axis = axes.select(1, d - 1 - c).contiguous();
    if (axis[axis.abs().argmax()].item<double>() < 0.0) axis = -axis;
    out.points.select(1, c).copy_(centred.mv(axis));
    out.explained[static_cast<size_t>(c)] = std::max(0.0, values[d - 1 - c].item<double>()) / total;
  }
  return out;
}

}  // namespace redline::models::embedding
