#include "train/guards/memory_guard.h"

#include <algorithm>

#include "core/check.h"

namespace redline::train {

std::vector<int64_t> MemoryGuard::pieces(int64_t rows, int64_t cost) const {
  if (limit_ <= 0 || cost <= limit_ || rows <= 1) return {rows};
  const int64_t count = std::min(rows, (cost + limit_ - 1) / limit_);
  std::vector<int64_t> sizes(static_cast<size_t>(count), rows / count);
  for (int64_t i = 0; i < rows % count; ++i) ++sizes[static_cast<size_t>(i)];
  return sizes;
}

bool MemoryGuard::on_out_of_memory(int64_t rows, int64_t cost) {
  REDLINE_CHECK(rows >= 1 && cost >= 1, "a piece that ran out of memory had rows");
  if (rows <= 1) return false;
  // Half the rows, rounded up, at this piece's cost per row: the next try is always strictly smaller.
  const int64_t half = (rows + 1) / 2;
  limit_ = std::max<int64_t>(1, cost * half / rows);
  return true;
}

}  // namespace redline::train
