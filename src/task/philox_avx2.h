// Four Philox4x32-10 blocks at once on AVX2; for .cpp files that carry target("avx2") functions.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "core/philox.h"

namespace redline::task::avx2 {

struct RoundKeys {
  explicit RoundKeys(PhiloxKey key) {
    for (int i = 0; i < 10; ++i) {
      lo[i] = key.lo + static_cast<uint32_t>(i) * 0x9E3779B9u;
      hi[i] = key.hi + static_cast<uint32_t>(i) * 0xBB67AE85u;
    }
  }
  int64_t lo[10], hi[10];  // each in the low half of a 64-bit lane
};

// Blocks first..first+3 of a sample. even holds blocks 0 (low 128 bits) and 2, odd blocks 1 and 3, each as four words
// in order.
__attribute__((target("avx2"), always_inline)) inline void four_blocks(const RoundKeys& keys, uint64_t sample,
                                                                       uint64_t first, __m256i& even, __m256i& odd) {
  const __m256i m0 = _mm256_set1_epi64x(0xD2511F53);
  const __m256i m1 = _mm256_set1_epi64x(0xCD9E8D57);
  const __m256i block =
      _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(first)), _mm256_setr_epi64x(0, 1, 2, 3));
  __m256i c0 = block;
  __m256i c1 = _mm256_srli_epi64(block, 32);
  __m256i c2 = _mm256_set1_epi64x(static_cast<int64_t>(sample));
  __m256i c3 = _mm256_srli_epi64(c2, 32);
  for (int round = 0; round < 10; ++round) {
    const __m256i p0 = _mm256_mul_epu32(c0, m0);
    const __m256i p1 = _mm256_mul_epu32(c2, m1);
    c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1), _mm256_set1_epi64x(keys.lo[round]));
    c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3), _mm256_set1_epi64x(keys.hi[round]));
    c1 = p1;
    c3 = p0;
  }
  const __m256i w01 = _mm256_blend_epi32(c0, _mm256_slli_epi64(c1, 32), 0xAA);
  const __m256i w23 = _mm256_blend_epi32(c2, _mm256_slli_epi64(c3, 32), 0xAA);
  even = _mm256_unpacklo_epi64(w01, w23);
  odd = _mm256_unpackhi_epi64(w01, w23);
}

// The 16-bit draws of the same blocks as masks: all ones where a draw is at least the threshold (in every lane).
__attribute__((target("avx2"), always_inline)) inline void four_keep_masks(const RoundKeys& keys, uint64_t sample,
                                                                           uint64_t first, __m256i threshold,
                                                                           __m256i& even, __m256i& odd) {
  four_blocks(keys, sample, first, even, odd);
  even = _mm256_cmpeq_epi16(_mm256_max_epu16(even, threshold), even);
  odd = _mm256_cmpeq_epi16(_mm256_max_epu16(odd, threshold), odd);
}

}  // namespace redline::task::avx2
