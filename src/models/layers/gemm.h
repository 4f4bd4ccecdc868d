// Matrix products on raw rows, for code that is itself parallel over tiles: a product inside a parallel region runs on
// one thread, stays in its L2 cache and reaches more of the core's rate than one big product shared by all (182 against
// 152 GFLOP/s for 32640 x 256 x 256 on two Zen cores). Under autocast the operands are rounded to bfloat16 or half and
// the sums stay float.
//
// Row-major throughout; ld = distance between rows.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace redline::models {

// kFloat, or autocast's type for the CPU when autocast is on for this thread.
torch::ScalarType gemm_type();

// Which product a weight is made ready for.
enum class GemmUse { kAny, kNt, kNn };

// A matrix as the products want it: the floats themselves, their panels for the one product it is meant for
// (panel_gemm.h; panel_gemm_bf16.h where the processor has bfloat16 units), or a copy in the low precision.
class GemmOperand {
 public:
  GemmOperand() = default;
  // `matrix` is a float CPU tensor, contiguous, and must outlive this.
  GemmOperand(const torch::Tensor& matrix, torch::ScalarType type, GemmUse use = GemmUse::kAny);
  const float* floats() const { return floats_; }
  const torch::Tensor& low() const { return low_; }
  const float* panels_for(GemmUse use) const {
    return use == use_ && panels_.defined() ? panels_.const_data_ptr<float>() : nullptr;
  }
  const torch::Tensor* low_panels_for(GemmUse use) const {
    return use == use_ && low_panels_.defined() ? &low_panels_ : nullptr;
  }

 private:
  const float* floats_ = nullptr;
  torch::Tensor low_, panels_, low_panels_;
  GemmUse use_ = GemmUse::kAny;
};

// Products of one thread. C = A B^T, A B, A^T B, each + beta C; beta is 0 or 1.
class TileGemm {
 public:
  explicit TileGemm(torch::ScalarType type) : type_(type) {}
  // a [m, k], weight [n, k] contiguous, c [m, n].
  void nt(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const GemmOperand& weight, float beta, float* c,
          int64_t ldc) const;
  // a [m, k], weight [k, n] contiguous, c [m, n].
  void nn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const GemmOperand& weight, float beta, float* c,
          int64_t ldc) const;
  // a [k, m], b [k, n], c [m, n].
  void tn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
          float* c, int64_t ldc) const;

 private:
  torch::ScalarType type_;
};

// Plain float products for attention, where all operands are activations. a [m, k], b [n, k] / [k, n] / a [k, m].
void float_nt(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
              float* c, int64_t ldc);
void float_nn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
              float* c, int64_t ldc);
void float_tn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
              float* c, int64_t ldc);

// Weight gradient a^T b of whole matrices a [rows, m], b [rows, n] -> [m, n], split over the threads by rows of the
// result.
torch::Tensor parallel_tn(const torch::Tensor& a, const torch::Tensor& b, torch::ScalarType type);

// Calls work(begin, end) for tiles of at most `largest` rows, in parallel, sized so that every thread gets a share.
void for_row_tiles(int64_t rows, int64_t largest, const std::function<void(int64_t begin, int64_t end)>& work);

}  // namespace redline::models
