#include "models/layers/gemm_bf16.h"

#include <ATen/Parallel.h>

#include <memory>
#include <vector>

#include "core/check.h"
#include "models/layers/gemm.h"
#include "models/layers/panel_gemm_bf16.h"

namespace redline::models {

namespace {

using bf16_panels::Bf16;
using bf16_panels::kPairLine;

Bf16* words(torch::Tensor& x) { return reinterpret_cast<Bf16*>(x.mutable_data_ptr<at::BFloat16>()); }
const Bf16* words(const torch::Tensor& x) { return reinterpret_cast<const Bf16*>(x.const_data_ptr<at::BFloat16>()); }

// Kept by the thread: a tile's rows are rounded for every product, and an allocation would cost as much as the work.
Bf16* scratch(int64_t count) {
  static thread_local std::vector<Bf16> space;
  if (space.size() < static_cast<size_t>(count)) space.resize(static_cast<size_t>(count));
  return space.data();
}

// Rows [begin, begin + rows) of a whole matrix, all panels.
void pack_rows(const torch::Tensor& x, int64_t begin, int64_t rows, int64_t panel_pairs, Bf16* to) {
  const int64_t columns = x.size(1), last = bf16_panels::count(columns);
  if (x.scalar_type() == torch::kBFloat16)
    bf16_panels::pack(words(x) + begin * columns, rows, columns, columns, 0, last, panel_pairs, to);
  else
    bf16_panels::pack(x.const_data_ptr<float>() + begin * columns, rows, columns, columns, 0, last, panel_pairs, to);
}

int64_t even(int64_t count) { return count + count % 2; }

}  // namespace

bool bf16_products(torch::ScalarType type) { return type == torch::kBFloat16 && bf16_panels::preferred(); }

torch::Tensor bf16_right_operand(const torch::Tensor& weight, bool transposed) {
  const int64_t rows = weight.size(0), row = rows == 0 ? 0 : weight.numel() / rows;
  const int64_t depth = transposed ? row : rows, columns = transposed ? rows : row;
  const float* from = weight.const_data_ptr<float>();
  torch::Tensor out = torch::empty({bf16_panels::size(depth, columns)}, torch::kBFloat16);
  Bf16* to = words(out);
  at::parallel_for(0, bf16_panels::count(columns), std::max<int64_t>(1, 65536 / std::max<int64_t>(1, 32 * depth)),
                   [&](int64_t first, int64_t last) {
                     if (transposed)
                       bf16_panels::pack_transposed(from, rows, row, row, first, last, to);
                     else
                       bf16_panels::pack(from, rows, row, row, first, last, bf16_panels::pairs(depth), to);
                   });
  return out;
}

void bf16_multiply(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const torch::Tensor& right, float beta,
                   float* c, int64_t ldc) {
  REDLINE_CHECK(right.numel() == bf16_panels::size(k, n), "the weight was made ready for this product");
  const int64_t length = bf16_panels::line(k);
  Bf16* left = scratch(m * length);
  bf16_panels::round_rows(a, m, k, lda, left);
  bf16_panels::multiply(m, k, {left, length}, {words(right), bf16_panels::pairs(k), n}, beta != 0.0f, c, ldc);
}

void bf16_multiply(int64_t m, int64_t n, int64_t k, const torch::Tensor& rounded, int64_t first_row,
                   const torch::Tensor& right, float beta, float* c, int64_t ldc) {
  const int64_t length = bf16_panels::line(k);
  REDLINE_CHECK(right.numel() == bf16_panels::size(k, n) && rounded.size(1) == length,
                "both operands were made ready for this product");
  bf16_panels::multiply(m, k, {words(rounded) + first_row * length, length}, {words(right), bf16_panels::pairs(k), n},
                        beta != 0.0f, c, ldc);
}

torch::Tensor bf16_rounded_rows(int64_t rows, int64_t k) {
  return torch::empty({rows, bf16_panels::line(k)}, torch::kBFloat16);
}

void bf16_round(const float* x, int64_t rows, int64_t k, int64_t ld, torch::Tensor& to, int64_t first_row) {
  bf16_panels::round_rows(x, rows, k, ld, words(to) + first_row * bf16_panels::line(k));
}

void bf16_weight_grad(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                      float beta, float* c, int64_t ldc) {
  constexpr int64_t kDepth = 512;
  const int64_t depth = std::min(even(k), kDepth),
                lines = depth / 2 + 8;  // a power of two would crowd a few cache sets
  Bf16* left = scratch(bf16_panels::size(2 * lines, m) + bf16_panels::size(2 * lines, n));
  Bf16* right = left + bf16_panels::size(2 * lines, m);
  for (int64_t start = 0; start == 0 || start < k; start += depth) {
    const int64_t count = std::min(depth, k - start);
    bf16_panels::pack(a + start * lda, count, m, lda, 0, bf16_panels::count(m), lines, left);
    bf16_panels::pack(b + start * ldb, count, n, ldb, 0, bf16_panels::count(n), lines, right);
    bf16_panels::multiply_transposed({bf16_panels::pairs(count), {left, lines, m}, {right, lines, n}},
                                     beta != 0.0f || start > 0, c, ldc, 0, bf16_panels::count(m), 0,
                                     bf16_panels::count(n));
    if (k == 0) return;
  }
}

void bf16_nt(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
             float* c, int64_t ldc) {
  const int64_t length = bf16_panels::line(k);
  Bf16 *left = scratch(m * length + bf16_panels::size(k, n)), *right = left + m * length;
  bf16_panels::round_rows(a, m, k, lda, left);
  bf16_panels::pack_transposed(b, n, k, ldb, 0, bf16_panels::count(n), right);
  bf16_panels::multiply(m, k, {left, length}, {right, bf16_panels::pairs(k), n}, beta != 0.0f, c, ldc);
}

void bf16_nn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
             float* c, int64_t ldc) {
  const int64_t length = bf16_panels::line(k), pairs = bf16_panels::pairs(k);
  Bf16 *left = scratch(m * length + bf16_panels::size(k, n)), *right = left + m * length;
  bf16_panels::round_rows(a, m, k, lda, left);
  bf16_panels::pack(b, k, n, ldb, 0, bf16_panels::count(n), pairs, right);
  bf16_panels::multiply(m, k, {left, length}, {right, pairs, n}, beta != 0.0f, c, ldc);
}

torch::Tensor bf16_parallel_tn(const torch::Tensor& a, const torch::Tensor& b) {
  constexpr int64_t kElements = 1 << 21;  // of a chunk's rows, both operands
  const int64_t k = a.size(0), m = a.size(1), n = b.size(1);
  torch::Tensor out = torch::empty({m, n});
  if (k == 0) return out.zero_();
  float* c = out.mutable_data_ptr<float>();
  const int64_t chunks = ((m + n) * k + kElements - 1) / kElements, depth = even((k + chunks - 1) / chunks);
  const int64_t lines = depth / 2 + 8, left_panels = bf16_panels::count(m), right_panels = bf16_panels::count(n);
  const int64_t left_size = bf16_panels::size(2 * lines, m);
  const std::unique_ptr<Bf16[]> space(new Bf16[static_cast<size_t>(left_size + bf16_panels::size(2 * lines, n))]);
  Bf16 *left = space.get(), *right = left + left_size;
  for (int64_t start = 0; start < k; start += depth) {
    const int64_t count = std::min(depth, k - start), pairs = bf16_panels::pairs(count);
    for_row_tiles(pairs, 64, [&](int64_t begin, int64_t end) {
      const int64_t rows = std::min(2 * end, count) - 2 * begin;
      pack_rows(a, start + 2 * begin, rows, lines, left + begin * kPairLine);
      pack_rows(b, start + 2 * begin, rows, lines, right + begin * kPairLine);
    });
    const bf16_panels::TransposedPlaces places{pairs, {left, lines, m}, {right, lines, n}};
    const bool by_left = left_panels >= right_panels;
    at::parallel_for(0, std::max(left_panels, right_panels), 1, [&](int64_t from, int64_t to) {
      if (by_left)
        bf16_panels::multiply_transposed(places, start > 0, c, n, from, to, 0, right_panels);
      else
        for (int64_t i = from; i < to; ++i)
          bf16_panels::multiply_transposed(places, start > 0, c, n, 0, left_panels, i, i + 1);
    });
  }
  return out;
}

}  // namespace redline::models
