// Seeded permutations for plans: Fisher-Yates on Philox draws keyed by (seed, epoch, salt, purpose), so a permutation
// depends on nothing but what it is for. A keyed Feistel network would need no memory, but buckets and windows need
// whole orders anyway, and a million samples take about 10 ms this way: draws come in vectorised blocks and the swaps'
// targets are prefetched.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "core/philox.h"

namespace redline::data {

// What a plan draws for; part of the key, so a number is never reused for another purpose.
enum class PlanDraw : uint64_t {
  Samples = 1,
  Groups = 2,
  LocalityGroups = 3,
  Parts = 4,
  PartSamples = 5,
  ConcatPart = 6,
  Substitute = 7
};

// The draws for one purpose, in blocks.
class PlanStream {
 public:
  PlanStream(uint64_t seed, int64_t epoch, uint64_t salt, PlanDraw draw);

  uint32_t next() {
    if (used_ == buffer_.size()) refill();
    return buffer_[used_++];
  }
  // In [0, count), unbiased (Lemire, "Fast random integer generation in an interval", 2019).
  uint32_t below(uint32_t count) {
    uint64_t product = uint64_t{next()} * count;
    if (static_cast<uint32_t>(product) < count) {
      const uint32_t threshold = (0 - count) % count;
      while (static_cast<uint32_t>(product) < threshold) product = uint64_t{next()} * count;
    }
    return static_cast<uint32_t>(product >> 32);
  }
  double uniform() {  // [0, 1)
    const uint64_t low = next();
    return static_cast<double>((low | uint64_t{next()} << 32) >> 11) * 0x1.0p-53;
  }

 private:
  void refill();

  static constexpr size_t kBlocks = 64;  // Philox blocks of four
  PhiloxKey key_;
  uint64_t identity_;
  uint64_t block_ = 0;
  size_t used_;
  std::array<uint32_t, kBlocks * 4> buffer_;
};

template <class T>
void shuffle(std::span<T> values, PlanStream stream) {
  constexpr size_t kAhead = 32;
  std::array<uint32_t, kAhead> picks;
  size_t left = values.size();
  while (left > 1) {
    const size_t count = std::min(kAhead, left - 1);
    for (size_t i = 0; i < count; ++i) {
      picks[i] = stream.below(static_cast<uint32_t>(left - i));
      __builtin_prefetch(&values[picks[i]], 1);
    }
    for (size_t i = 0; i < count; ++i, --left) std::swap(values[left - 1], values[picks[i]]);
  }
}

}  // namespace redline::data
