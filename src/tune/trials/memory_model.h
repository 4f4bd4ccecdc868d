// Which batch sizes can fit, from sizes that ran: peak memory is a constant part plus a part per sample. Used only to
// skip what cannot fit; a size the tuner returns is always one that ran.
#pragma once

#include <cstdint>
#include <vector>

namespace redline::tune {

class MemoryModel {
 public:
  void add(int64_t micro_batch, int64_t peak_bytes);
  void add_failure(int64_t micro_batch);  // ran out of memory
  // True when the size surely does not fit: at least as large as one that failed, or predicted above limit * (1 +
  // margin).
  bool infeasible(int64_t micro_batch, int64_t limit_bytes, double margin = 0.1) const;
  // Least-squares line through the sizes that ran; 0 with fewer than two distinct ones.
  int64_t predicted_bytes(int64_t micro_batch) const;
  int64_t largest_that_ran() const;  // -1: none

 private:
  std::vector<std::pair<int64_t, int64_t>> ran_;
  int64_t smallest_failure_ = INT64_MAX;
};

}  // namespace redline::tune
