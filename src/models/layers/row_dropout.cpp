// Masks as float multipliers in a small buffer that stays in the first-level cache: kernels multiply by it, which keeps
// them free of random-number code.
#include "models/layers/row_dropout.h"

#include <immintrin.h>

#include "task/philox_avx2.h"

namespace redline::models {

void fill_mask_plain(const DropoutDraw& dropout, uint64_t sample, uint64_t first, int64_t count, float* out) {
  uint32_t words[4] = {};
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t element = first + static_cast<uint64_t>(i);
    if (i == 0 || element % 8 == 0)
      task::philox_words(dropout.key, sample, element / 8, 1, words, task::RandomPath::kPlain);
    const uint32_t bits = (words[element % 8 / 2] >> (16 * (element % 2))) & 0xffffu;
    out[i] = bits >= dropout.threshold ? dropout.scale : 0.0f;
  }
}

namespace {

__attribute__((target("avx2"))) void fill_mask_avx2(const DropoutDraw& dropout, uint64_t sample, uint64_t first,
                                                    int64_t count, float* out) {
  const task::avx2::RoundKeys keys(dropout.key);
  const __m256i threshold = _mm256_set1_epi16(static_cast<int16_t>(dropout.threshold));
  const __m256 scale = _mm256_set1_ps(dropout.scale);
  for (int64_t i = 0; i < count; i += 32) {
    __m256i even, odd;
    task::avx2::four_keep_masks(keys, sample, (first + static_cast<uint64_t>(i)) / 8, threshold, even, odd);
    const __m128i parts[4] = {_mm256_castsi256_si128(even), _mm256_castsi256_si128(odd),
                              _mm256_extracti128_si256(even, 1), _mm256_extracti128_si256(odd, 1)};
    for (int part = 0; part < 4; ++part) {
      const __m256 keep = _mm256_castsi256_ps(_mm256_cvtepi16_epi32(parts[part]));
      _mm256_storeu_ps(out + i + 8 * part, _mm256_and_ps(keep, scale));
    }
  }
}

}  // namespace

void fill_mask(const DropoutDraw& dropout, uint64_t sample, uint64_t first, int64_t count, float* out) {
  if (first % 8 == 0 && task::best_random_path() == task::RandomPath::kVector)
    fill_mask_avx2(dropout, sample, first, count, out);
  else
    fill_mask_plain(dropout, sample, first, count, out);
}

torch::Tensor mask_tensor(const DropoutDraw& dropout, const PackedRows& rows, int64_t width) {
  const int64_t padded = (width + 31) / 32 * 32;  // fill_mask writes whole groups
  torch::Tensor mask = torch::ones({rows.num_rows(), padded}, torch::kFloat32);
  if (dropout.active()) {
    float* out = mask.mutable_data_ptr<float>();
    for (int64_t n = 0; n < rows.num_rows(); ++n)
      fill_mask(dropout, rows.sample_key(n), static_cast<uint64_t>(rows.time[static_cast<size_t>(n)] * width), width,
                out + n * padded);
  }
  return mask.narrow(1, 0, width).contiguous();
}

}  // namespace redline::models
