// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC'11), keyed so that a draw depends only on what it is
// for (seed, epoch, sample, operation, element) and never on the thread, worker or rank that makes it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace redline {

struct PhiloxKey {
  uint32_t lo = 0, hi = 0;
};
using PhiloxBlock = std::array<uint32_t, 4>;

// One block of four 32-bit numbers; matches the published known-answer vectors of Random123.
PhiloxBlock philox4x32_10(PhiloxBlock counter, PhiloxKey key);

// Mixes the parts of an identity into a 64-bit key (SplitMix64 finaliser over a running state; order matters).
uint64_t mix_key(uint64_t a, uint64_t b);

// The key of an operation that is known by its name. Frozen: another value here would be another dropout mask, so other
// losses and a resumed run that leaves its path. That is why it is not hash64, which may change with a format version.
uint64_t name_key(std::string_view name);

// A stream of draws for one (seed, epoch, sample, operation). Cheap to construct; copy freely; not shared between
// threads.
class KeyedStream {
 public:
  KeyedStream(uint64_t seed, uint64_t epoch, uint64_t sample, uint64_t operation);

  uint32_t next_u32();
  uint64_t next_u64();
  double uniform();                             // [0, 1), 53 bits
  double uniform(double lo, double hi);         // [lo, hi)
  int64_t uniform_int(int64_t lo, int64_t hi);  // [lo, hi], unbiased; requires lo <= hi
  double normal();                              // Box-Muller

 private:
  PhiloxKey key_;
  PhiloxBlock counter_{};
  PhiloxBlock block_{};
  int used_ = 4;
  bool has_spare_ = false;
  double spare_ = 0.0;
};

}  // namespace redline
