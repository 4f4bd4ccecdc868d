// gemm.h's products where the processor has bfloat16 units: both operands are rounded once, the weight into panels when
// it is made ready, the other into a small buffer of the thread; sums and result stay float. No product is compiled for
// its shape, so ragged rows cost nothing extra.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace redline::models {

// Whether products of this type come from here: bfloat16, and the units are there (panel_gemm_bf16.h).
bool bf16_products(torch::ScalarType type);

// A weight [depth, columns], or with `transposed` [columns, depth], as a right operand: bfloat16, flat.
torch::Tensor bf16_right_operand(const torch::Tensor& weight, bool transposed);

// Of one thread. c [m, n] = a [m, k] right + beta c.
void bf16_multiply(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const torch::Tensor& right, float beta,
                   float* c, int64_t ldc);
// The same with rows that are rounded already, as bf16_rounded_rows gives them.
void bf16_multiply(int64_t m, int64_t n, int64_t k, const torch::Tensor& rounded, int64_t first_row,
                   const torch::Tensor& right, float beta, float* c, int64_t ldc);
// Room for `rows` rounded rows of k elements (an odd k is made even with a zero); rounds some of them.
torch::Tensor bf16_rounded_rows(int64_t rows, int64_t k);
void bf16_round(const float* x, int64_t rows, int64_t k, int64_t ld, torch::Tensor& to, int64_t first_row);
// Of one thread. c [m, n] = a^T b + beta c with a [k, m], b [k, n].
void bf16_weight_grad(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                      float beta, float* c, int64_t ldc);
// Of one thread, where both operands are activations: c [m, n] = a b^T + beta c with b [n, k], a b + beta c with b [k,
// n].
void bf16_nt(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
             float* c, int64_t ldc);
void bf16_nn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
             float* c, int64_t ldc);
// By all threads: a [rows, m] and b [rows, n], each float or bfloat16, contiguous -> [m, n].
torch::Tensor bf16_parallel_tn(const torch::Tensor& a, const torch::Tensor& b);

}  // namespace redline::models
