// Philox4x32-10 after Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11, section 3.
// A stream spends 128 bits on its identity: 64 in the key and 64 in the upper half of the counter, so that two samples
// share a stream with probability 2^-128 per pair, not 2^-64.
#include "core/philox.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "core/check.h"

namespace redline {

namespace {

constexpr uint32_t kPhiloxMultiply0 = 0xD2511F53, kPhiloxMultiply1 = 0xCD9E8D57;
constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
uint64_t splitmix_finalise(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

PhiloxBlock philox4x32_10(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultiply0} * counter[0];
    const uint64_t product1 = uint64_t{kPhiloxMultiply1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key.lo, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key.hi, static_cast<uint32_t>(product0)};
    key.lo += kPhiloxWeyl0;
    key.hi += kPhiloxWeyl1;
  }
  return counter;
}

uint64_t mix_key(uint64_t a, uint64_t b) { return splitmix_finalise((splitmix_finalise(a + kGolden) ^ b) + kGolden); }

namespace {

// One multiplication to 128 bits, folded: each half carries bits of both factors.
uint64_t fold_product(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{a} * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Up to eight characters from a place on, the first in the lowest byte.
uint64_t name_word(std::string_view name, size_t at) {
  uint64_t word = 0;
  if (at < name.size()) std::memcpy(&word, name.data() + at, std::min<size_t>(name.size() - at, 8));
  return word;
}

}  // namespace

uint64_t name_key(std::string_view name) {
  // Digits of pi (hexadecimal), forced odd so that no factor is even.
  constexpr uint64_t kPi[4] = {0x243F6A8885A308D3, 0x13198A2E03707345, 0xA4093822299F31D1, 0x082EFA98EC4E6C89};
  uint64_t a = kPi[0], b = fold_product(kPi[1], kPi[2]);
  size_t at = 0;
  for (; name.size() - at > 16; at += 16) {
    a = fold_product(name_word(name, at) ^ kPi[1], name_word(name, at + 8) ^ a);
    b = fold_product(b ^ a, kPi[3]) + kPi[0];
  }
  a = fold_product(name_word(name, at) ^ kPi[2] ^ b, name_word(name, at + 8) ^ a ^ name.size());
  return fold_product(a ^ kPi[3] ^ name.size(), b ^ a ^ kPi[1]);
}

KeyedStream::KeyedStream(uint64_t seed, uint64_t epoch, uint64_t sample, uint64_t operation) {
  const uint64_t key = mix_key(mix_key(seed, epoch), operation);
  const uint64_t stream = mix_key(mix_key(sample, operation), mix_key(epoch, seed));
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  counter_[2] = static_cast<uint32_t>(stream);
  counter_[3] = static_cast<uint32_t>(stream >> 32);
}

uint32_t KeyedStream::next_u32() {
  if (used_ == 4) {
    block_ = philox4x32_10(counter_, key_);
    if (++counter_[0] == 0) ++counter_[1];
    used_ = 0;
  }
  return block_[static_cast<size_t>(used_++)];
}

uint64_t KeyedStream::next_u64() {
  const uint64_t lo = next_u32();
  return lo | (uint64_t{next_u32()} << 32);
}

double KeyedStream::uniform() { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }

double KeyedStream::uniform(double lo, double hi) {
  const double value = lo + (hi - lo) * uniform();
  return value < hi || hi <= lo ? value : std::nextafter(hi, lo);  // rounding must not reach the open end
}

// Multiply-shift with rejection (Lemire, "Fast random integer generation in an interval", 2019).
int64_t KeyedStream::uniform_int(int64_t lo, int64_t hi) {
  REDLINE_CHECK(lo <= hi, "an interval to draw from has its ends in order");
  const uint64_t count = static_cast<uint64_t>(hi) - static_cast<uint64_t>(lo) + 1;
  if (count == 0) return static_cast<int64_t>(next_u64());  // all 2^64 values
  const uint64_t threshold = (0 - count) % count;
  __extension__ using Wide = unsigned __int128;
  while (true) {
    const Wide product = Wide{next_u64()} * count;
    if (static_cast<uint64_t>(product) >= threshold) {
      return static_cast<int64_t>(static_cast<uint64_t>(lo) + static_cast<uint64_t>(product >> 64));
    }
  }
}

double KeyedStream::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));  // 1 - u is in (0, 1]
  const double angle = 2.0 * std::numbers::pi * uniform();
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

}  // namespace redline
