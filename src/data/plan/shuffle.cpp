#include "data/plan/shuffle.h"

namespace redline::data {

PlanStream::PlanStream(uint64_t seed, int64_t epoch, uint64_t salt, PlanDraw draw) : used_(kBlocks * 4) {
  const uint64_t key = mix_key(mix_key(seed, static_cast<uint64_t>(epoch)), static_cast<uint64_t>(draw));
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  identity_ = mix_key(salt, mix_key(static_cast<uint64_t>(draw), key));
}

// Philox4x32-10 as in core/philox.cpp, with the lanes side by side so that the compiler uses vector instructions; the
// test compares.
void PlanStream::refill() {
  constexpr uint32_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57, kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  alignas(64) uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) {
    c0[i] = static_cast<uint32_t>(block_ + i);
    c1[i] = static_cast<uint32_t>((block_ + i) >> 32);
    c2[i] = static_cast<uint32_t>(identity_);
    c3[i] = static_cast<uint32_t>(identity_ >> 32);
  }
  uint32_t key0 = key_.lo, key1 = key_.hi;
  for (int round = 0; round < 10; ++round, key0 += kWeyl0, key1 += kWeyl1) {
    for (size_t i = 0; i < kBlocks; ++i) {
      const uint64_t product0 = uint64_t{kMultiply0} * c0[i], product1 = uint64_t{kMultiply1} * c2[i];
      const uint32_t next0 = static_cast<uint32_t>(product1 >> 32) ^ c1[i] ^ key0;
      const uint32_t next2 = static_cast<uint32_t>(product0 >> 32) ^ c3[i] ^ key1;
      c1[i] = static_cast<uint32_t>(product1);
      c3[i] = static_cast<uint32_t>(product0);
      c0[i] = next0;
      c2[i] = next2;
    }
  }
  for (size_t i = 0; i < kBlocks; ++i) {
    buffer_[4 * i] = c0[i];
    buffer_[4 * i + 1] = c1[i];
    buffer_[4 * i + 2] = c2[i];
    buffer_[4 * i + 3] = c3[i];
  }
  block_ += kBlocks;
  used_ = 0;
}

}  // namespace redline::data
