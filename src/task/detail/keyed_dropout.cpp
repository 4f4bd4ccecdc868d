// Kernels and autograd node of keyed dropout. The node is written by hand (not torch::autograd::Function) because it
// carries plain C++ state, the mask's address, and no saved tensor.
#include "task/detail/keyed_dropout.h"

#include <ATen/Parallel.h>
#include <immintrin.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "core/check.h"
#include "task/philox_avx2.h"

namespace redline::task {

namespace {

// A stretch of one sample: elements [first, first + count) with first a multiple of 8.
struct Stretch {
  DropoutDraw draw;
  uint64_t sample, first;
  int64_t count;
};

template <class T>
void drop_plain(const T* x, T* y, const Stretch& s) {
  uint32_t words[4];
  for (int64_t i = 0; i < s.count; ++i) {
    if (i % 8 == 0)
      philox_words(s.draw.key, s.sample, (s.first + static_cast<uint64_t>(i)) / 8, 1, words, RandomPath::kPlain);
    const uint32_t bits = (words[(i % 8) / 2] >> (16 * (i % 2))) & 0xffffu;
    // Written as a product so that the vector path's rounding (float product, then one rounding to T) is the same.
    y[i] = bits >= s.draw.threshold
               ? static_cast<T>(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(x[i]) *
                                s.draw.scale)
               : T(0);
  }
}

// Eight values as floats and back, for the types the vector path knows.
__attribute__((target("avx2,f16c"), always_inline)) inline __m256 load8(const float* x) { return _mm256_loadu_ps(x); }
__attribute__((target("avx2,f16c"), always_inline)) inline void store8(float* y, __m256 v) { _mm256_storeu_ps(y, v); }
__attribute__((target("avx2,f16c"), always_inline)) inline __m256 load8(const at::BFloat16* x) {
  const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
}
__attribute__((target("avx2,f16c"), always_inline)) inline void store8(at::BFloat16* y, __m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  rounded = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0), nan);
  const __m256i packed = _mm256_packus_epi32(rounded, rounded);
  const __m128i low = _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y), low);
}
__attribute__((target("avx2,f16c"), always_inline)) inline __m256 load8(const at::Half* x) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
}
__attribute__((target("avx2,f16c"), always_inline)) inline void store8(at::Half* y, __m256 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

template <class T>
__attribute__((target("avx2,f16c"), always_inline)) inline void drop8(const T* x, T* y, __m128i keep, __m256 scale) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_cvtepi16_epi32(keep));
  store8(y, _mm256_and_ps(mask, _mm256_mul_ps(load8(x), scale)));
}

template <class T>
__attribute__((target("avx2,f16c"))) void drop_avx2(const T* x, T* y, const Stretch& s) {
  const avx2::RoundKeys keys(s.draw.key);
  const __m256i threshold = _mm256_set1_epi16(static_cast<int16_t>(s.draw.threshold));
  const __m256 scale = _mm256_set1_ps(s.draw.scale);
  const uint64_t first_block = s.first / 8;
  int64_t i = 0;
  for (; i + 32 <= s.count; i += 32) {
    __m256i even, odd;
    avx2::four_keep_masks(keys, s.sample, first_block + static_cast<uint64_t>(i / 8), threshold, even, odd);
    drop8(x + i, y + i, _mm256_castsi256_si128(even), scale);
    drop8(x + i + 8, y + i + 8, _mm256_castsi256_si128(odd), scale);
    drop8(x + i + 16, y + i + 16, _mm256_extracti128_si256(even, 1), scale);
    drop8(x + i + 24, y + i + 24, _mm256_extracti128_si256(odd, 1), scale);
  }
  if (i < s.count) {
    T in[32] = {}, out[32];
    std::copy(x + i, x + s.count, in);
    __m256i even, odd;
    avx2::four_keep_masks(keys, s.sample, first_block + static_cast<uint64_t>(i / 8), threshold, even, odd);
    drop8(in, out, _mm256_castsi256_si128(even), scale);
    drop8(in + 8, out + 8, _mm256_castsi256_si128(odd), scale);
    drop8(in + 16, out + 16, _mm256_extracti128_si256(even, 1), scale);
    drop8(in + 24, out + 24, _mm256_extracti128_si256(odd, 1), scale);
    std::copy(out, out + (s.count - i), y + i);
  }
}

void keep_plain(const bool*, bool* kept, const Stretch& s) {
  uint32_t words[4];
  for (int64_t i = 0; i < s.count; ++i) {
    if (i % 8 == 0)
      philox_words(s.draw.key, s.sample, (s.first + static_cast<uint64_t>(i)) / 8, 1, words, RandomPath::kPlain);
    kept[i] = ((words[(i % 8) / 2] >> (16 * (i % 2))) & 0xffffu) >= s.draw.threshold;
  }
}

__attribute__((target("avx2"))) void keep_avx2(const bool*, bool* kept, const Stretch& s) {
  const avx2::RoundKeys keys(s.draw.key);
  const __m256i threshold = _mm256_set1_epi16(static_cast<int16_t>(s.draw.threshold));
  const __m128i one = _mm_set1_epi8(1);
  alignas(16) bool group[32];
  for (int64_t i = 0; i < s.count; i += 32) {
    __m256i even, odd;
    avx2::four_keep_masks(keys, s.sample, (s.first + static_cast<uint64_t>(i)) / 8, threshold, even, odd);
    const bool whole = i + 32 <= s.count;
    auto* out = reinterpret_cast<__m128i*>(whole ? kept + i : group);
    const __m128i low = _mm_packs_epi16(_mm256_castsi256_si128(even), _mm256_castsi256_si128(odd));
    const __m128i high = _mm_packs_epi16(_mm256_extracti128_si256(even, 1), _mm256_extracti128_si256(odd, 1));
    _mm_storeu_si128(out, _mm_and_si128(low, one));
    _mm_storeu_si128(out + 1, _mm_and_si128(high, one));
    if (!whole) std::copy(group, group + (s.count - i), kept + i);
  }
}

// Splits all runs of all rows into stretches and shares them among the intra-op threads.
template <class T, class Kernel>
void for_each_stretch(const T* x, T* y, const DropoutMask& mask, Kernel kernel) {
  constexpr int64_t kStretch = 4096, kGrain = 16384;
  const int64_t length = mask.layout.run_length(), runs = mask.layout.runs_per_row();
  if (length == 0 || runs == 0) return;
  const int64_t pieces = (length + kStretch - 1) / kStretch;
  const int64_t per_unit = std::min(length, kStretch);
  at::parallel_for(
      0, mask.layout.rows() * runs * pieces, std::max<int64_t>(1, kGrain / per_unit), [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t piece = unit % pieces, run = unit / pieces;  // run counts over all rows
          const int64_t offset = piece * kStretch;
          const Stretch s{mask.draw, static_cast<uint64_t>(mask.sample_ids[static_cast<size_t>(run / runs)]),
                          mask.layout.run_key(run % runs) + static_cast<uint64_t>(offset),
                          std::min(kStretch, length - offset)};
          kernel(x + run * length + offset, y + run * length + offset, s);
        }
      });
}

template <class T>
void drop_all(const torch::Tensor& x, torch::Tensor& y, const DropoutMask& mask, RandomPath path) {
  const T* in = x.const_data_ptr<T>();
  T* out = y.mutable_data_ptr<T>();
  if constexpr (!std::is_same_v<T, double>) {
    if (path == RandomPath::kVector && __builtin_cpu_supports("f16c")) {
      for_each_stretch(in, out, mask, drop_avx2<T>);
      return;
    }
  }
  for_each_stretch(in, out, mask, drop_plain<T>);
}

struct KeyedDropoutBackward : torch::autograd::Node {
  std::shared_ptr<const DropoutMask> mask;
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    if (!grads[0].defined()) return {torch::Tensor()};
    return {keyed_dropout(grads[0], mask)};  // linear in its input, so its own derivative is itself
  }
  std::string name() const override { return "KeyedDropoutBackward"; }
};

}  // namespace

torch::Tensor apply_dropout_mask(const torch::Tensor& x, const DropoutMask& mask, RandomPath path) {
  if (!x.device().is_cpu()) {
    const torch::Tensor ones = torch::ones(x.sizes(), torch::kFloat32);
    return x * apply_dropout_mask(ones, mask, path).to(x.options());
  }
  const auto format = x.suggest_memory_format();
  const torch::Tensor source = x.contiguous();
  torch::Tensor out = torch::empty_like(source);
  switch (x.scalar_type()) {
    case torch::kFloat32:
      drop_all<float>(source, out, mask, path);
      break;
    case torch::kBFloat16:
      drop_all<at::BFloat16>(source, out, mask, path);
      break;
    case torch::kFloat16:
      drop_all<at::Half>(source, out, mask, path);
      break;
    case torch::kFloat64:
      drop_all<double>(source, out, mask, path);
      break;
    default:
      REDLINE_CHECK(false, "dropout acts on floating-point tensors");
  }
  return out.contiguous(format);
}

torch::Tensor kept_elements(at::IntArrayRef shape, const DropoutMask& mask, RandomPath path) {
  torch::Tensor out = torch::empty(shape, torch::kBool);
  bool* kept = out.mutable_data_ptr<bool>();
  // There is no source to read: a stretch is given by its keys alone.
  for_each_stretch<bool>(kept, kept, mask, path == RandomPath::kVector ? keep_avx2 : keep_plain);
  return out;
}

torch::Tensor keyed_dropout(const torch::Tensor& x, std::shared_ptr<const DropoutMask> mask) {
  REDLINE_CHECK(x.numel() == mask->layout.rows() * mask->layout.runs_per_row() * mask->layout.run_length(),
                "the mask was laid out for this tensor");
  torch::Tensor out;
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    out = apply_dropout_mask(x, *mask, best_random_path());
  }
  if (torch::autograd::compute_requires_grad(x)) {
    auto node = c10::make_intrusive<KeyedDropoutBackward>();
    node->set_next_edges(torch::autograd::collect_next_edges(x));
    node->mask = std::move(mask);
    torch::autograd::set_history(out, node);
  }
  return out;
}

}  // namespace redline::task
