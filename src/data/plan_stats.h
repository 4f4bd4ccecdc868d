// What a data set's lengths mean for batching: quantiles, and the share of padding for several batch sizes with and
// without buckets. Pure: plans are made, nothing is read.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/plan/plan.h"

namespace redline::data {

struct LengthStats {
  int64_t count = 0, unknown = 0;
  double total = 0, min = 0, p5 = 0, median = 0, p95 = 0, p99 = 0, max = 0, mean = 0;
};
LengthStats length_stats(int64_t count, const std::function<double(int64_t)>& length);

// Of the epoch's padded elements, the share that is padding: 1 - sum of lengths / sum of count x longest, over all
// groups.
double padding_share(const EpochPlan& plan, const std::function<double(int64_t)>& length);

struct PaddingRow {
  int64_t batch_size = 0;
  double plain = 0, bucketed = 0;
};
// For each batch size, from epoch 0 of plans that otherwise follow `base`; `num_buckets` for the bucketed column.
std::vector<PaddingRow> padding_table(const PlanSettings& base, const PlanSource& source,
                                      const std::vector<int64_t>& batch_sizes, int num_buckets);

}  // namespace redline::data
