// Time that kernels of our own spend in matrix products of a low precision, and in float ones beside them, of all
// threads together. LibTorch's observers see operators, not what runs inside ours. Counted only between start() and
// stop(), else a product costs one look at a flag.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/time.h"

namespace redline::device::low_products {

inline std::atomic<bool> counting{false};
inline std::atomic<int64_t> low_ns{0}, float_ns{0};

inline void start() {
  low_ns = 0;
  float_ns = 0;
  counting = true;
}
// Seconds since start(), added over the threads.
struct Spent {
  double low = 0, floats = 0;
};
inline Spent stop() {
  counting = false;
  return {static_cast<double>(low_ns.load()) * 1e-9, static_cast<double>(float_ns.load()) * 1e-9};
}

// Around one product.
class Timed {
 public:
  explicit Timed(std::atomic<int64_t>& total = low_ns)
      : total_(total), begin_(counting.load(std::memory_order_relaxed) ? now_ns() : 0) {}
  ~Timed() {
    if (begin_ != 0) total_.fetch_add(now_ns() - begin_, std::memory_order_relaxed);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  std::atomic<int64_t>& total_;
  int64_t begin_;
};

}  // namespace redline::device::low_products
