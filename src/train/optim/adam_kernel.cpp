// Formulas: torch.optim.AdamW and Adam. Dividing costs more than the memory traffic, so one division an element is
// left: the gradient is scaled by the divisor's inverse (exact for loss scales, which are powers of two), and the
// second moment's correction is moved to the other side of the fraction, a / (sqrt(v) / b + eps) = a b / (sqrt(v) + eps
// b).
#include "train/optim/adam_kernel.h"

#include <ATen/Parallel.h>
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

namespace redline::train {

namespace {

constexpr int64_t kAdamBlock = 1 << 14;
constexpr uint32_t kExponent = 0x7f800000;  // all set: Inf or NaN

struct AdamPiece {
  const AdamTensor* tensor;
  int64_t begin, count;
};

float step_one(const AdamScalars& s, float value, float gradient, float& first, float& second, float* third) {
  gradient *= s.gradient_scale;
  if (s.weight_decay != 0.0F) {
    if (s.decoupled)
      value -= s.lr * s.weight_decay * value;
    else
      gradient = std::fma(s.weight_decay, value, gradient);
  }
  first = std::fma(1.0F - s.beta1, gradient - first, first);
  second = std::fma(second, s.beta2, (1.0F - s.beta2) * gradient * gradient);
  float square = second;
  if (third != nullptr) square = *third = std::max(*third, second);
  return value - s.step_size * first / (std::sqrt(square) + s.eps);
}

// True when every new value is finite.
template <bool kAmsgrad>
bool step_piece(const AdamPiece& piece) {
  const AdamTensor& t = *piece.tensor;
  const AdamScalars& s = t.scalars;
  float *value = t.value + piece.begin, *first = t.first + piece.begin, *second = t.second + piece.begin;
  float* third = kAmsgrad ? t.third + piece.begin : nullptr;
  const float* gradient = t.gradient + piece.begin;
  const __m256 gradient_scale = _mm256_set1_ps(s.gradient_scale);
  const __m256 decay_value = _mm256_set1_ps(s.decoupled ? s.lr * s.weight_decay : 0.0F);
  const __m256 decay_gradient = _mm256_set1_ps(s.decoupled ? 0.0F : s.weight_decay);
  const __m256 one_minus_beta1 = _mm256_set1_ps(1.0F - s.beta1), beta2 = _mm256_set1_ps(s.beta2),
               one_minus_beta2 = _mm256_set1_ps(1.0F - s.beta2), step_size = _mm256_set1_ps(s.step_size),
               eps = _mm256_set1_ps(s.eps);
  const __m256i exponent = _mm256_set1_epi32(static_cast<int>(kExponent));
  __m256i bad = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 8 <= piece.count; i += 8) {
    __m256 p = _mm256_loadu_ps(value + i), g = _mm256_mul_ps(_mm256_loadu_ps(gradient + i), gradient_scale);
    g = _mm256_fmadd_ps(decay_gradient, p, g);
    p = _mm256_fnmadd_ps(decay_value, p, p);
    __m256 m = _mm256_loadu_ps(first + i), v = _mm256_loadu_ps(second + i);
    m = _mm256_fmadd_ps(one_minus_beta1, _mm256_sub_ps(g, m), m);
    v = _mm256_fmadd_ps(v, beta2, _mm256_mul_ps(_mm256_mul_ps(one_minus_beta2, g), g));
    _mm256_storeu_ps(first + i, m);
    _mm256_storeu_ps(second + i, v);
    if constexpr (kAmsgrad) {
      v = _mm256_max_ps(_mm256_loadu_ps(third + i), v);
      _mm256_storeu_ps(third + i, v);
    }
    const __m256 scale = _mm256_add_ps(_mm256_sqrt_ps(v), eps);
    p = _mm256_sub_ps(p, _mm256_div_ps(_mm256_mul_ps(step_size, m), scale));
    _mm256_storeu_ps(value + i, p);
    const __m256i bits = _mm256_and_si256(_mm256_castps_si256(p), exponent);
    bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(bits, exponent));
  }
  bool good = _mm256_testz_si256(bad, bad) != 0;
  for (; i < piece.count; ++i) {
    value[i] = step_one(s, value[i], gradient[i], first[i], second[i], kAmsgrad ? third + i : nullptr);
    good = good && (std::bit_cast<uint32_t>(value[i]) & kExponent) != kExponent;
  }
  return good;
}

}  // namespace

AdamScalars adam_scalars(const AdamRates& r, int64_t step) {
  const auto f = [](double x) { return static_cast<float>(x); };
  const auto n = static_cast<double>(step);
  const double bias1 = 1.0 - std::pow(r.beta1, n), bias2_sqrt = std::sqrt(1.0 - std::pow(r.beta2, n));
  return {.lr = f(r.lr),
          .beta1 = f(r.beta1),
          .beta2 = f(r.beta2),
          .weight_decay = f(r.weight_decay),
          .gradient_scale = f((r.maximize ? -1.0 : 1.0) / r.divisor),
          .step_size = f(r.lr / bias1 * bias2_sqrt),
          .eps = f(r.eps * bias2_sqrt),
          .decoupled = r.decoupled};
}

bool adam_step(const std::vector<AdamTensor>& tensors) {
  std::vector<AdamPiece> pieces;
  for (const AdamTensor& tensor : tensors)
    for (int64_t begin = 0; begin < tensor.count; begin += kAdamBlock)
      pieces.push_back({&tensor, begin, std::min(kAdamBlock, tensor.count - begin)});
  std::atomic<bool> good{true};
  at::parallel_for(0, static_cast<int64_t>(pieces.size()), 4, [&](int64_t begin, int64_t end) {
    bool mine = true;
    for (int64_t i = begin; i < end; ++i) {
      const AdamPiece& piece = pieces[static_cast<size_t>(i)];
      const bool fine = piece.tensor->third != nullptr ? step_piece<true>(piece) : step_piece<false>(piece);
      mine = mine && fine;
    }
    if (!mine) good.store(false, std::memory_order_relaxed);
  });
  return good.load();
}

}  // namespace redline::train
