// Time that kernels of our own spend in matrix products of a low precision, of all threads together. LibTorch's
// observers see operators, not what runs inside ours. Counted only between start() and stop(), else a product costs one
// look at a flag.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/time.h"

namespace redline::device::low_products {

inline std::atomic<bool> counting{false};
inline std::atomic<int64_t> nanoseconds{0};

inline void start() {
  nanoseconds = 0;
  counting = true;
}
// Seconds since start(), added over the threads.
inline double stop() {
  counting = false;
  return static_cast<double>(nanoseconds.load()) * 1e-9;
}

// Around one product.
class Timed {
 public:
  Timed() : begin_(counting.load(std::memory_order_relaxed) ? now_ns() : 0) {}
  ~Timed() {
    if (begin_ != 0) nanoseconds.fetch_add(now_ns() - begin_, std::memory_order_relaxed);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  int64_t begin_;
};

}  // namespace redline::device::low_products
