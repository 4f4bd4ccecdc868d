#include "data/plan_stats.h"

#include <cmath>

namespace redline::data {

LengthStats length_stats(int64_t count, const std::function<double(int64_t)>& length) {
  LengthStats stats;
  stats.count = count;
  std::vector<double> known;
  known.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double value = length(i);
    if (std::isnan(value)) {
      ++stats.unknown;
    } else {
      known.push_back(value);
      stats.total += value;
    }
  }
  if (known.empty()) return stats;
  std::sort(known.begin(), known.end());
  const auto at = [&known](double q) { return known[static_cast<size_t>(q * static_cast<double>(known.size() - 1))]; };
  stats.min = known.front();
  stats.p5 = at(0.05);
  stats.median = at(0.5);
  stats.p95 = at(0.95);
  stats.p99 = at(0.99);
  stats.max = known.back();
  stats.mean = stats.total / static_cast<double>(known.size());
  return stats;
}

double padding_share(const EpochPlan& plan, const std::function<double(int64_t)>& length) {
  double real = 0.0, padded = 0.0;
  for (const auto& group : plan.groups) {
    double longest = 0.0;
    for (uint32_t entry : plan.of(group)) {
      const double value = length(plan.sample(entry));
      if (std::isnan(value)) continue;
      longest = std::max(longest, value);
      real += value;
    }
    padded += longest * static_cast<double>(group.size);
  }
  return padded > 0.0 ? 1.0 - real / padded : 0.0;
}

std::vector<PaddingRow> padding_table(const PlanSettings& base, const PlanSource& source,
                                      const std::vector<int64_t>& batch_sizes, int num_buckets) {
  std::vector<PaddingRow> rows;
  const double cut = base.cut_length;
  const std::function<double(int64_t)> length = [&source, cut](int64_t sample) {
    return std::min(source.length(sample), cut);
  };
  for (int64_t batch : batch_sizes) {
    PlanSettings plain = base;
    plain.batch_size = batch;
    plain.num_buckets = 1;
    plain.bucket_edges.clear();
    plain.group_length = 0.0;
    plain.parts_are_buckets = plain.parts_are_sampled = false;
    PlanSettings bucketed = plain;
    bucketed.num_buckets = num_buckets;
    rows.push_back({batch, padding_share(*Planner(plain, source).epoch(0), length),
                    padding_share(*Planner(bucketed, source).epoch(0), length)});
  }
  return rows;
}

}  // namespace redline::data
