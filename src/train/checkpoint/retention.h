// What to keep: a pure function over the generations on disk. The newest two always stay: one may be damaged when it is
// needed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace redline::train {

struct RetentionPolicy {
  int64_t keep_last = 2;
  int64_t save_top_k = 1;       // -1 = keep all, 0 = none for their metric
  int64_t max_keep_ckpts = -1;  // -1 = no bound
  bool lower_is_better = true;
};

struct RetainedItem {
  int64_t step = 0;
  std::optional<double> metric;
};

// Indices into `items` (ascending by step) that may be deleted, ascending. Ties of the metric keep the earlier step,
// NaN ranks last.
std::vector<size_t> generations_to_remove(std::span<const RetainedItem> items, const RetentionPolicy& policy);

}  // namespace redline::train
