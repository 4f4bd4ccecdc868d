// Float products go straight to the BLAS inside LibTorch (its Fortran name is exported; the wheel has no header for
// it). The symbol is weak: where a LibTorch has no such BLAS, at::mm does the same work with a little more overhead per
// call.
#include "models/layers/gemm.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "core/check.h"

extern "C" __attribute__((weak)) void sgemm_(const char* transa, const char* transb, const int* m, const int* n,
                                             const int* k, const float* alpha, const float* a, const int* lda,
                                             const float* b, const int* ldb, const float* beta, float* c,
                                             const int* ldc);

namespace redline::models {

namespace {

torch::Tensor view_of(const void* data, int64_t rows, int64_t columns, int64_t ld, torch::ScalarType type) {
  return torch::from_blob(const_cast<void*>(data), {rows, columns}, {ld, 1}, torch::TensorOptions().dtype(type));
}

// c = a b + beta c by LibTorch's operators, without autograd and autocast.
void product_by_operators(const torch::Tensor& a, const torch::Tensor& b, float beta, float* c, int64_t ldc) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  torch::Tensor out = view_of(c, a.size(0), b.size(1), ldc, torch::kFloat32);
  const torch::Tensor product = torch::mm(a, b);
  if (beta == 0.0f)
    out.copy_(product);
  else
    out.mul_(beta).add_(product);
}

struct Operand {
  const float* data;
  int64_t ld;
  bool transposed;
};

// c [m, n] = op(a) op(b) + beta c, row-major. BLAS is column-major, where a row-major matrix is its own transpose: c^T
// = op(b)^T op(a)^T.
void float_product(int64_t m, int64_t n, int64_t k, const Operand& a, const Operand& b, float beta, float* c,
                   int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (sgemm_ != nullptr) {
    const int im = static_cast<int>(n), in = static_cast<int>(m), ik = static_cast<int>(k);
    const int ia = static_cast<int>(b.ld), ib = static_cast<int>(a.ld), ic = static_cast<int>(ldc);
    const float one = 1.0f;
    sgemm_(b.transposed ? "T" : "N", a.transposed ? "T" : "N", &im, &in, &ik, &one, b.data, &ia, a.data, &ib, &beta, c,
           &ic);
    return;
  }
  const torch::Tensor left =
      a.transposed ? view_of(a.data, k, m, a.ld, torch::kFloat32).t() : view_of(a.data, m, k, a.ld, torch::kFloat32);
  const torch::Tensor right =
      b.transposed ? view_of(b.data, n, k, b.ld, torch::kFloat32).t() : view_of(b.data, k, n, b.ld, torch::kFloat32);
  product_by_operators(left, right, beta, c, ldc);
}

}  // namespace

torch::ScalarType gemm_type() {
  return at::autocast::is_autocast_enabled(at::kCPU) ? at::autocast::get_autocast_dtype(at::kCPU) : torch::kFloat32;
}

GemmOperand::GemmOperand(const torch::Tensor& matrix, torch::ScalarType type)
    : floats_(matrix.const_data_ptr<float>()) {
  REDLINE_CHECK(matrix.is_contiguous(), "a weight's rows lie one after another");
  if (type != torch::kFloat32) low_ = matrix.to(type);
}

void TileGemm::nt(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const GemmOperand& weight, float beta,
                  float* c, int64_t ldc) const {
  if (type_ == torch::kFloat32) return float_nt(m, n, k, a, lda, weight.floats(), k, beta, c, ldc);
  product_by_operators(view_of(a, m, k, lda, torch::kFloat32).to(type_), weight.low().view({n, k}).t(), beta, c, ldc);
}

void TileGemm::nn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const GemmOperand& weight, float beta,
                  float* c, int64_t ldc) const {
  if (type_ == torch::kFloat32) return float_nn(m, n, k, a, lda, weight.floats(), n, beta, c, ldc);
  product_by_operators(view_of(a, m, k, lda, torch::kFloat32).to(type_), weight.low().view({k, n}), beta, c, ldc);
}

void TileGemm::tn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
                  float* c, int64_t ldc) const {
  if (type_ == torch::kFloat32) return float_tn(m, n, k, a, lda, b, ldb, beta, c, ldc);
  product_by_operators(view_of(a, k, m, lda, torch::kFloat32).to(type_).t(),
                       view_of(b, k, n, ldb, torch::kFloat32).to(type_), beta, c, ldc);
}

void float_nt(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
              float* c, int64_t ldc) {
  float_product(m, n, k, {a, lda, false}, {b, ldb, true}, beta, c, ldc);
}
void float_nn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
              float* c, int64_t ldc) {
  float_product(m, n, k, {a, lda, false}, {b, ldb, false}, beta, c, ldc);
}
void float_tn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
              float* c, int64_t ldc) {
  float_product(m, n, k, {a, lda, true}, {b, ldb, false}, beta, c, ldc);
}

torch::Tensor parallel_tn(const torch::Tensor& a, const torch::Tensor& b, torch::ScalarType type) {
  REDLINE_CHECK(a.is_contiguous() && b.is_contiguous() && a.size(0) == b.size(0), "both operands have the same rows");
  if (type != torch::kFloat32) return torch::mm(a.to(type).t(), b.to(type)).to(torch::kFloat32);
  const int64_t rows = a.size(0), m = a.size(1), n = b.size(1);
  torch::Tensor out = torch::empty({m, n});
  const float *x = a.const_data_ptr<float>(), *y = b.const_data_ptr<float>();
  float* c = out.mutable_data_ptr<float>();
  if (rows == 0) return out.zero_();
  for_row_tiles(m, 512, [&](int64_t begin, int64_t end) {
    float_tn(end - begin, n, rows, x + begin, m, y, n, 0.0f, c + begin * n, n);
  });
  return out;
}

void for_row_tiles(int64_t rows, int64_t largest, const std::function<void(int64_t begin, int64_t end)>& work) {
  if (rows == 0) return;
  const int64_t threads = at::get_num_threads();
  // The fewest tiles that are a multiple of the thread count and not above the largest size; never below 16 rows.
  int64_t tiles = (rows + largest - 1) / largest;
  tiles = (tiles + threads - 1) / threads * threads;
  tiles = std::clamp<int64_t>(tiles, 1, std::max<int64_t>(1, rows / 16));
  at::parallel_for(0, tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) work(rows * tile / tiles, rows * (tile + 1) / tiles);
  });
}

}  // namespace redline::models
