// A non-finite element makes its block's sum of squares non-finite (no cancellation: squares), so the pass that takes
// the norm also checks; squares are taken in double, where no float overflows.
#include "train/optim/gradients.h"

#include <ATen/Parallel.h>
#include <immintrin.h>

#include <cmath>

#include "core/check.h"

namespace redline::train {

namespace {

constexpr int64_t kBlock = 1 << 14;

// Sixteen running sums, so that one addition need not wait for the last; both paths add the same in the same order.
constexpr int64_t kSums = 16;

double total(double* sums) {
  for (int64_t half = kSums / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

double sum_squares_plain(const float* x, int64_t count) {
  double sums[kSums] = {};
  for (int64_t i = 0; i < count; ++i) sums[i % kSums] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total(sums);
}

__attribute__((target("avx2"))) double sum_squares_avx2(const float* x, int64_t count) {
  __m256d lanes[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int k = 0; k < 4; ++k) {
      const __m256d a = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * k));
      lanes[k] = _mm256_add_pd(lanes[k], _mm256_mul_pd(a, a));
    }
  }
  alignas(32) double sums[kSums];
  for (int k = 0; k < 4; ++k) _mm256_store_pd(sums + 4 * k, lanes[k]);
  for (; i < count; ++i) sums[i % kSums] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total(sums);
}

// All exponent bits set = Inf or NaN.
__attribute__((target("avx2"))) bool all_finite_avx2(const float* x, int64_t count) {
  const __m256i exponent = _mm256_set1_epi32(0x7f800000);
  __m256i bad = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(_mm256_and_si256(bits, exponent), exponent));
  }
  bool good = _mm256_testz_si256(bad, bad) != 0;
  for (; i < count; ++i) good = good && std::isfinite(x[i]);
  return good;
}

bool all_finite_plain(const float* x, int64_t count) {
  bool good = true;
  for (int64_t i = 0; i < count; ++i) good = good && std::isfinite(x[i]);
  return good;
}

bool has_avx2() {
  static const bool yes = __builtin_cpu_supports("avx2");
  return yes;
}

struct FloatBlock {
  const float* data;
  int64_t count;
  size_t tensor;
};

// Contiguous float32 on the CPU in blocks; anything else is left to the tensor path.
bool is_plain_float(const torch::Tensor& t) {
  return t.device().is_cpu() && t.scalar_type() == torch::kFloat32 && t.is_non_overlapping_and_dense();
}

std::vector<FloatBlock> blocks_of(std::span<const torch::Tensor> tensors) {
  std::vector<FloatBlock> blocks;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined() || !is_plain_float(tensors[i])) continue;
    const float* data = tensors[i].const_data_ptr<float>();
    const int64_t count = tensors[i].numel();
    for (int64_t begin = 0; begin < count; begin += kBlock)
      blocks.push_back({data + begin, std::min(kBlock, count - begin), i});
  }
  return blocks;
}

double sum_squares_of(const torch::Tensor& t) { return t.to(torch::kFloat64).square().sum().item<double>(); }

GradientCheck combine(std::span<const torch::Tensor> gradients, const std::vector<FloatBlock>& blocks,
                      const std::vector<double>& sums) {
  std::vector<double> per_tensor(gradients.size(), 0.0);
  for (size_t i = 0; i < blocks.size(); ++i) per_tensor[blocks[i].tensor] += sums[i];
  GradientCheck check;
  double total = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    if (!is_plain_float(gradients[i])) per_tensor[i] = sum_squares_of(gradients[i]);
    if (check.finite && !std::isfinite(per_tensor[i])) {
      check.finite = false;
      check.first_non_finite = i;
    }
    total += per_tensor[i];
  }
  check.norm = std::sqrt(total);
  return check;
}

}  // namespace

GradientCheck check_gradients(std::span<const torch::Tensor> gradients) {
  const std::vector<FloatBlock> blocks = blocks_of(gradients);
  std::vector<double> sums(blocks.size());
  const auto kernel = has_avx2() ? sum_squares_avx2 : sum_squares_plain;
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const FloatBlock& block = blocks[static_cast<size_t>(i)];
      sums[static_cast<size_t>(i)] = kernel(block.data, block.count);
    }
  });
  return combine(gradients, blocks, sums);
}

GradientCheck check_gradients_plain(std::span<const torch::Tensor> gradients) {
  const std::vector<FloatBlock> blocks = blocks_of(gradients);
  std::vector<double> sums;
  for (const FloatBlock& block : blocks) sums.push_back(sum_squares_plain(block.data, block.count));
  return combine(gradients, blocks, sums);
}

std::optional<size_t> first_non_finite(std::span<const torch::Tensor> tensors) {
  const std::vector<FloatBlock> blocks = blocks_of(tensors);
  std::vector<char> good(blocks.size(), 1);
  const auto kernel = has_avx2() ? all_finite_avx2 : all_finite_plain;
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const FloatBlock& block = blocks[static_cast<size_t>(i)];
      good[static_cast<size_t>(i)] = kernel(block.data, block.count) ? 1 : 0;
    }
  });
  std::optional<size_t> first;
  for (size_t i = 0; i < blocks.size() && !first; ++i)
    if (good[i] == 0) first = blocks[i].tensor;
  for (size_t i = 0; i < tensors.size() && (!first || i < *first); ++i) {
    const torch::Tensor& t = tensors[i];
    if (!t.defined() || is_plain_float(t) || !t.is_floating_point()) continue;
    if (!torch::isfinite(t).all().item<bool>()) first = i;
  }
  return first;
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0.0) return 1.0;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace redline::train
