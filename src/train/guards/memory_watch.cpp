#include "train/guards/memory_watch.h"

#include <algorithm>
#include <cstdlib>

namespace redline::train {

namespace {
constexpr int64_t kLeastTensorLimit = int64_t{64} << 20;  // as device::memory::default_limit
constexpr int64_t kShare = 50;                            // moves of less than a fiftieth of the process are noise
}  // namespace

std::optional<int64_t> MemoryWatch::update(int64_t rss_bytes, int64_t peak_bytes) {
  if (process_bytes_ <= 0 || first_limit_ <= 0) return std::nullopt;
  const int64_t others = std::max<int64_t>(0, rss_bytes - peak_bytes);
  const int64_t room = std::max(process_bytes_ - others, std::min(kLeastTensorLimit, first_limit_));
  const int64_t wanted = std::min(first_limit_, room);
  const bool back = wanted == first_limit_ && limit_ != first_limit_;
  if (!back && std::abs(wanted - limit_) <= process_bytes_ / kShare) return std::nullopt;
  limit_ = wanted;
  return limit_;
}

}  // namespace redline::train
