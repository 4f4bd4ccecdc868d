// Philox in bulk. The vector path keeps each 32-bit word in the low half of a 64-bit lane: AVX2 multiplies exactly
// those halves, so a round needs no shuffles and the garbage above is never read.
#include "task/keyed_random.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/philox.h"
#include "task/philox_avx2.h"

namespace redline::task {

PhiloxKey operation_key(uint64_t seed, int64_t step, std::string_view operation) {
  const uint64_t key = mix_key(mix_key(seed, static_cast<uint64_t>(step)), name_key(operation));
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

uint32_t dropout_threshold(double p) {
  REDLINE_CHECK(p >= 0.0 && p < 1.0, "dropout's p lies in [0, 1)");
  return static_cast<uint32_t>(std::min(65535.0, std::round(p * 65536.0)));
}

DropoutDraw dropout_draw(PhiloxKey key, double p) {
  const uint32_t threshold = dropout_threshold(p);
  return {key, threshold, 65536.0f / static_cast<float>(65536 - threshold)};
}

RandomPath best_random_path() {
  static const RandomPath path = __builtin_cpu_supports("avx2") ? RandomPath::kVector : RandomPath::kPlain;
  return path;
}

namespace {

constexpr int64_t kGroupBlocks = 16;  // one call's worth of words in the run functions
constexpr int64_t kGroupElements = kGroupBlocks * 4;

void words_plain(PhiloxKey key, uint64_t sample, uint64_t first_block, int64_t num_blocks, uint32_t* words) {
  for (int64_t i = 0; i < num_blocks; ++i) {
    const uint64_t block = first_block + static_cast<uint64_t>(i);
    const PhiloxBlock out = philox4x32_10({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                           static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32)},
                                          key);
    std::memcpy(words + i * 4, out.data(), 16);
  }
}

__attribute__((target("avx2"))) void words_avx2(PhiloxKey key, uint64_t sample, uint64_t first_block,
                                                int64_t num_blocks, uint32_t* words) {
  const avx2::RoundKeys keys(key);
  for (int64_t i = 0; i < num_blocks; i += 4) {
    __m256i even, odd;
    avx2::four_blocks(keys, sample, first_block + static_cast<uint64_t>(i), even, odd);
    alignas(32) uint32_t buffer[16];
    _mm256_store_si256(reinterpret_cast<__m256i*>(buffer), _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_store_si256(reinterpret_cast<__m256i*>(buffer + 8), _mm256_permute2x128_si256(even, odd, 0x31));
    std::memcpy(words + i * 4, buffer, static_cast<size_t>(std::min<int64_t>(4, num_blocks - i)) * 16);
  }
}

// Natural logarithm of u in [2^-24, 1]: split into mantissa in [sqrt(1/2), sqrt(2)) and exponent, then atanh series in
// s = (m-1)/(m+1), |s| < 0.1716: terms to s^13 leave less than 1e-8 (Abramowitz and Stegun 4.1.27).
float log_of_uniform(float u) {
  uint32_t bits = std::bit_cast<uint32_t>(u);
  const uint32_t shifted = bits - 0x3f3504f3u;  // sqrt(1/2)
  const int32_t exponent = static_cast<int32_t>(shifted) >> 23;
  bits -= static_cast<uint32_t>(exponent) << 23;
  const float m = std::bit_cast<float>(bits);
  const float s = (m - 1.0f) / (m + 1.0f);
  const float z = s * s;
  const float series =
      1.0f + z * (1.0f / 3 + z * (1.0f / 5 + z * (1.0f / 7 + z * (1.0f / 9 + z * (1.0f / 11 + z * (1.0f / 13))))));
  return 2.0f * s * series + static_cast<float>(exponent) * 0.69314718055994531f;
}

// sin and cos of 2 pi u, u in [0, 1): the nearest quarter turn is taken off exactly, the rest (at most pi/4) by Taylor
// series whose first omitted terms are below 3e-9.
void sincos_of_turns(float u, float& sine, float& cosine) {
  const float quarters = u * 4.0f;
  const int32_t quadrant = static_cast<int32_t>(quarters + 0.5f);
  const float x = (quarters - static_cast<float>(quadrant)) * 1.57079632679489662f;
  const float z = x * x;
  const float s = x * (1.0f + z * (-1.0f / 6 + z * (1.0f / 120 + z * (-1.0f / 5040 + z * (1.0f / 362880)))));
  const float c = 1.0f + z * (-0.5f + z * (1.0f / 24 + z * (-1.0f / 720 + z * (1.0f / 40320 + z * (-1.0f / 3628800)))));
  const float swap_s = (quadrant & 1) != 0 ? c : s;
  const float swap_c = (quadrant & 1) != 0 ? s : c;
  sine = (quadrant & 2) != 0 ? -swap_s : swap_s;
  cosine = ((quadrant + 1) & 2) != 0 ? -swap_c : swap_c;
}

void uniform_group(const uint32_t* words, float* out) {
  for (int64_t i = 0; i < kGroupElements; ++i)
    out[i] = static_cast<float>(static_cast<int32_t>(words[i] >> 8)) * 0x1p-24f;
}

void normal_group(const uint32_t* words, float* out) {
  for (int64_t i = 0; i < kGroupElements; i += 2) {
    const float u = static_cast<float>(static_cast<int32_t>(words[i] >> 8) + 1) * 0x1p-24f;  // (0, 1]
    const float v = static_cast<float>(static_cast<int32_t>(words[i + 1] >> 8)) * 0x1p-24f;
    const float radius = std::sqrt(std::max(0.0f, -2.0f * log_of_uniform(u)));
    float sine, cosine;
    sincos_of_turns(v, sine, cosine);
    out[i] = radius * cosine;
    out[i + 1] = radius * sine;
  }
}

template <class Group>
void run_in_groups(PhiloxKey key, uint64_t sample, uint64_t first, int64_t count, float* out, RandomPath path,
                   Group group) {
  REDLINE_CHECK(first % 4 == 0, "a run of draws begins at a block");
  alignas(32) uint32_t words[kGroupElements];
  alignas(32) float values[kGroupElements];
  for (int64_t done = 0; done < count; done += kGroupElements) {
    philox_words(key, sample, (first + static_cast<uint64_t>(done)) / 4, kGroupBlocks, words, path);
    group(words, values);
    std::memcpy(out + done, values, static_cast<size_t>(std::min(kGroupElements, count - done)) * sizeof(float));
  }
}

}  // namespace

void philox_words(PhiloxKey key, uint64_t sample, uint64_t first_block, int64_t num_blocks, uint32_t* words,
                  RandomPath path) {
  if (path == RandomPath::kVector)
    words_avx2(key, sample, first_block, num_blocks, words);
  else
    words_plain(key, sample, first_block, num_blocks, words);
}

void uniform_run(PhiloxKey key, uint64_t sample, uint64_t first, int64_t count, float* out, RandomPath path) {
  run_in_groups(key, sample, first, count, out, path, uniform_group);
}

void normal_run(PhiloxKey key, uint64_t sample, uint64_t first, int64_t count, float* out, RandomPath path) {
  run_in_groups(key, sample, first, count, out, path, normal_group);
}

KeyLayout::KeyLayout(const std::vector<int64_t>& shape, const std::vector<int64_t>& padded_dims) {
  REDLINE_CHECK(!shape.empty(), "a keyed tensor's first dimension is the batch");
  const auto rank = static_cast<int64_t>(shape.size());
  std::vector<bool> padded(shape.size(), false);
  for (int64_t dim : padded_dims) {
    const int64_t index = dim < 0 ? dim + rank : dim;
    REDLINE_CHECK(index > 0 && index < rank, "padded_dims name inner dimensions of the tensor");
    REDLINE_CHECK(shape[static_cast<size_t>(index)] <= kPaddedExtent, "a padded dimension has at most 2^21 positions");
    padded[static_cast<size_t>(index)] = true;
  }
  rows_ = shape[0];
  // From the last dimension outwards: until the first padded one (it may itself be part of the run) memory and key
  // agree.
  uint64_t stride = 1;
  bool agree = true;
  for (int64_t dim = rank - 1; dim >= 1; --dim) {
    const auto i = static_cast<size_t>(dim);
    if (agree) {
      run_length_ *= shape[i];
    } else {
      outer_extents_.insert(outer_extents_.begin(), shape[i]);
      outer_strides_.insert(outer_strides_.begin(), stride);
      runs_per_row_ *= shape[i];
    }
    const auto extent = static_cast<uint64_t>(padded[i] && dim > 1 ? kPaddedExtent : std::max<int64_t>(1, shape[i]));
    REDLINE_CHECK(!__builtin_mul_overflow(stride, extent, &stride), "the element keys of a sample fit 64 bits");
    if (padded[i] && dim > 1) agree = false;
  }
}

uint64_t KeyLayout::run_key(int64_t run) const {
  uint64_t key = 0;
  for (size_t i = outer_extents_.size(); i-- > 0;) {
    key += static_cast<uint64_t>(run % outer_extents_[i]) * outer_strides_[i];
    run /= outer_extents_[i];
  }
  return key;
}

}  // namespace redline::task
