// The metrics that look at classes by their centres only.
#pragma once

#include <torch/torch.h>

#include "models/convnext/embedding/class_order.h"

namespace redline::models::embedding {

struct CentroidMetrics {
  double davies_bouldin = 0.0, calinski_harabasz = 0.0;
};

// `vectors` is [n, d] float64 in the order of the classes; at least two classes and more vectors than classes.
CentroidMetrics centroid_metrics(const torch::Tensor& vectors, const ClassOrder& order);

}  // namespace redline::models::embedding
