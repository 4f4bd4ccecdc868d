// Cuts micro-batches into pieces when memory runs out, so that the effective batch stays. No tensor, clock or thread.
#pragma once

#include <cstdint>
#include <vector>

namespace redline::train {

// Splits a step's micro-batches when memory runs out and remembers the size that worked. Sizes are in the batch's own
// cost: padded items when the data counts them, else rows.
class MemoryGuard {
 public:
  int64_t limit() const { return limit_; }  // largest cost of a piece; 0 = whole micro-batches
  void restore(int64_t limit) { limit_ = limit; }
  // Rows of each piece for a micro-batch.
  std::vector<int64_t> pieces(int64_t rows, int64_t cost) const;
  // A piece of `rows` rows and `cost` did not fit. False when it cannot be split further.
  bool on_out_of_memory(int64_t rows, int64_t cost);

 private:
  int64_t limit_ = 0;
};

}  // namespace redline::train
