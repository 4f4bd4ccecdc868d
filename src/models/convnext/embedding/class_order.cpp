#include "models/convnext/embedding/class_order.h"

#include <algorithm>
#include <numeric>

namespace redline::models::embedding {

ClassOrder order_by_class(std::span<const int64_t> labels) {
  ClassOrder order;
  order.rows.resize(labels.size());
  std::iota(order.rows.begin(), order.rows.end(), 0);
  const auto label = [&](int64_t row) { return labels[static_cast<size_t>(row)]; };
  std::stable_sort(order.rows.begin(), order.rows.end(), [&](int64_t a, int64_t b) { return label(a) < label(b); });
  order.class_of.resize(labels.size());
  for (size_t i = 0; i < order.rows.size(); ++i) {
    if (i == 0 || label(order.rows[i]) != label(order.rows[i - 1])) order.begin.push_back(static_cast<int64_t>(i));
    order.class_of[i] = static_cast<int64_t>(order.begin.size()) - 1;
  }
  order.begin.push_back(static_cast<int64_t>(labels.size()));
  return order;
}

}  // namespace redline::models::embedding
