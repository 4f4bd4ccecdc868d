#include "tune/trials/memory_model.h"

#include <algorithm>

namespace redline::tune {

void MemoryModel::add(int64_t micro_batch, int64_t peak_bytes) { ran_.emplace_back(micro_batch, peak_bytes); }

void MemoryModel::add_failure(int64_t micro_batch) { smallest_failure_ = std::min(smallest_failure_, micro_batch); }

int64_t MemoryModel::predicted_bytes(int64_t micro_batch) const {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (const auto& [size, bytes] : ran_) {
    const auto x = static_cast<double>(size), y = static_cast<double>(bytes);
    n += 1, sx += x, sy += y, sxx += x * x, sxy += x * y;
  }
  const double spread = n * sxx - sx * sx;
  if (spread <= 0) return 0;
  const double slope = std::max(0.0, (n * sxy - sx * sy) / spread);
  return static_cast<int64_t>((sy - slope * sx) / n + slope * static_cast<double>(micro_batch));
}

bool MemoryModel::infeasible(int64_t micro_batch, int64_t limit_bytes, double margin) const {
  if (micro_batch >= smallest_failure_) return true;
  const int64_t predicted = predicted_bytes(micro_batch);
  return limit_bytes > 0 && predicted > 0 &&
         static_cast<double>(predicted) > static_cast<double>(limit_bytes) * (1 + margin);
}

int64_t MemoryModel::largest_that_ran() const {
  int64_t largest = -1;
  for (const auto& [size, bytes] : ran_) largest = std::max(largest, size);
  return largest;
}

}  // namespace redline::tune
