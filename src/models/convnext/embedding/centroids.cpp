#include "models/convnext/embedding/centroids.h"

#include <cmath>

namespace redline::models::embedding {

namespace {

constexpr double kNothing = 1e-8;  // numpy's allclose to 0, by which scikit-learn decides

}  // namespace

CentroidMetrics centroid_metrics(const torch::Tensor& vectors, const ClassOrder& order) {
  const torch::NoGradGuard no_grad;
  const int64_t classes = order.num_classes(), n = vectors.size(0), d = vectors.size(1);
  const torch::Tensor centre = vectors.mean(0);
  torch::Tensor centres = torch::empty({classes, d}, torch::kFloat64);
  std::vector<double> spread(static_cast<size_t>(classes));  // mean distance to the centre
  double within = 0.0, between = 0.0;
  bool spread_at_all = false;
  for (int64_t c = 0; c < classes; ++c) {
    const int64_t count = order.count(c);
    const torch::Tensor own = vectors.narrow(0, order.begin[static_cast<size_t>(c)], count), mean = own.mean(0);
    centres[c].copy_(mean);
    const torch::Tensor squared = (own - mean).square().sum(1);
    spread[static_cast<size_t>(c)] = squared.sqrt().mean().item<double>();
    spread_at_all = spread_at_all || spread[static_cast<size_t>(c)] > kNothing;
    within += squared.sum().item<double>();
    between += static_cast<double>(count) * (mean - centre).square().sum().item<double>();
  }
  CentroidMetrics out;
  out.calinski_harabasz =
      within == 0.0 ? 1.0 : between * static_cast<double>(n - classes) / (within * static_cast<double>(classes - 1));
  bool apart_at_all = false;
  double sum = 0.0;
  for (int64_t a = 0; a < classes; ++a) {  // a row at a time: there may be many thousand classes
    const torch::Tensor distances = (centres - centres[a]).square().sum(1).sqrt();
    const double* apart = distances.const_data_ptr<double>();
    double worst = 0.0;
    for (int64_t b = 0; b < classes; ++b) {
      apart_at_all = apart_at_all || apart[b] > kNothing;
      if (b != a && apart[b] > 0.0)
        worst = std::max(worst, (spread[static_cast<size_t>(a)] + spread[static_cast<size_t>(b)]) / apart[b]);
    }
    sum += worst;
  }
  out.davies_bouldin = spread_at_all && apart_at_all ? sum / static_cast<double>(classes) : 0.0;
  return out;
}

}  // namespace redline::models::embedding
