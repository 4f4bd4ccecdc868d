// Float products with a weight made ready for them, and weight gradients, are our own (panel_gemm.h); others go
// straight to the BLAS inside LibTorch (its Fortran name is exported; the wheel has no header for it). The symbol is
// weak: where a LibTorch has no such BLAS, at::mm does the same work with a little more overhead per call.
#include "models/layers/gemm.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>

#include "core/check.h"
#include "device/low_products.h"
#include "models/layers/gemm_bf16.h"
#include "models/layers/packed_weights.h"
#include "models/layers/panel_gemm.h"

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
    const device::low_products::Timed timed(device::low_products::float_ns);
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

constexpr int64_t kFewColumns = 16;  // below, most of a panel would be filled with zeros

// c = a^T b + beta c, both put into panels first: a copy for two operations of each element with the other's columns.
void weight_grad(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
                 float* c, int64_t ldc) {
  constexpr int64_t kDepth = 512;
  if (!panels::preferred() || m < kFewColumns || n < kFewColumns || k == 0)
    return float_tn(m, n, k, a, lda, b, ldb, beta, c, ldc);
  const int64_t depth = std::min(k, kDepth), lines = depth + 16;  // a power of two would crowd into a few cache sets
  const std::unique_ptr<float[]> space(
      new float[static_cast<size_t>(panels::floats(lines, m) + panels::floats(lines, n))]);
  float *left = space.get(), *right = left + panels::floats(lines, m);
  for (int64_t start = 0; start < k; start += depth) {
    const int64_t count = std::min(depth, k - start);
    panels::pack(a + start * lda, count, m, lda, 0, panels::count(m), lines, left);
    panels::pack(b + start * ldb, count, n, ldb, 0, panels::count(n), lines, right);
    panels::multiply_transposed({count, left, lines, m, right, lines, n, beta != 0.0f || start > 0, c, ldc}, 0,
                                panels::count(m), 0, panels::count(n));
  }
}

// The same of whole matrices by all threads: they copy rows, then compute panels of the result.
void weight_grad_by_all(int64_t k, int64_t m, int64_t n, const float* a, const float* b, float* c) {
  constexpr int64_t kFloats = 1 << 20;  // of a chunk's rows, both operands
  const int64_t chunks = ((m + n) * k + kFloats - 1) / kFloats, depth = (k + chunks - 1) / chunks, lines = depth + 16;
  const int64_t left_panels = panels::count(m), right_panels = panels::count(n);
  const std::unique_ptr<float[]> space(
      new float[static_cast<size_t>(panels::floats(lines, m) + panels::floats(lines, n))]);
  float *left = space.get(), *right = left + panels::floats(lines, m);
  for (int64_t start = 0; start < k; start += depth) {
    const int64_t count = std::min(depth, k - start);
    for_row_tiles(count, 128, [&](int64_t begin, int64_t end) {
      panels::pack(a + (start + begin) * m, end - begin, m, m, 0, left_panels, lines, left + begin * panels::kPanel);
      panels::pack(b + (start + begin) * n, end - begin, n, n, 0, right_panels, lines, right + begin * panels::kPanel);
    });
    const panels::TransposedJob job{count, left, lines, m, right, lines, n, start > 0, c, n};
    const bool by_left = left_panels >= right_panels;
    at::parallel_for(0, std::max(left_panels, right_panels), 1, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i)
        if (by_left)
          panels::multiply_transposed(job, i, i + 1, 0, right_panels);
        else
          panels::multiply_transposed(job, 0, left_panels, i, i + 1);
    });
  }
}

}  // namespace

torch::ScalarType gemm_type() {
  return at::autocast::is_autocast_enabled(at::kCPU) ? at::autocast::get_autocast_dtype(at::kCPU) : torch::kFloat32;
}

GemmOperand::GemmOperand(const torch::Tensor& matrix, torch::ScalarType type, GemmUse use)
    : floats_(matrix.const_data_ptr<float>()), use_(use) {
  REDLINE_CHECK(matrix.is_contiguous(), "a weight's rows lie one after another");
  if (use != GemmUse::kAny && bf16_products(type)) {
    low_panels_ = packed_weight(matrix, use == GemmUse::kNt);
  } else if (type != torch::kFloat32) {
    low_ = matrix.to(type);
  } else if (use != GemmUse::kAny && panels::preferred() && matrix.numel() > 0) {
    const int64_t rows = matrix.size(0), columns = matrix.numel() / rows;
    const bool transposed = use == GemmUse::kNt;
    const int64_t depth = transposed ? columns : rows, width = transposed ? rows : columns;
    panels_ = torch::empty({panels::floats(depth, width)});
    float* to = panels_.mutable_data_ptr<float>();
    at::parallel_for(0, panels::count(width), std::max<int64_t>(1, 32768 / (panels::kPanel * depth)),
                     [&](int64_t first, int64_t last) {
                       if (transposed)
                         panels::pack_transposed(floats_, rows, columns, columns, first, last, to);
                       else
                         panels::pack(floats_, rows, columns, columns, first, last, rows, to);
                     });
  }
}

void TileGemm::nt(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const GemmOperand& weight, float beta,
                  float* c, int64_t ldc) const {
  if (const torch::Tensor* ready = weight.low_panels_for(GemmUse::kNt))
    return bf16_multiply(m, n, k, a, lda, *ready, beta, c, ldc);
  if (const float* ready = weight.panels_for(GemmUse::kNt))
    return panels::multiply(m, n, k, panels::Left::row_major(a, lda), ready, beta != 0.0f, c, ldc);
  if (type_ == torch::kFloat32) return float_nt(m, n, k, a, lda, weight.floats(), k, beta, c, ldc);
  product_by_operators(view_of(a, m, k, lda, torch::kFloat32).to(type_), weight.low().view({n, k}).t(), beta, c, ldc);
}

void TileGemm::nn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const GemmOperand& weight, float beta,
                  float* c, int64_t ldc) const {
  if (const torch::Tensor* ready = weight.low_panels_for(GemmUse::kNn))
    return bf16_multiply(m, n, k, a, lda, *ready, beta, c, ldc);
  if (const float* ready = weight.panels_for(GemmUse::kNn))
    return panels::multiply(m, n, k, panels::Left::row_major(a, lda), ready, beta != 0.0f, c, ldc);
  if (type_ == torch::kFloat32) return float_nn(m, n, k, a, lda, weight.floats(), n, beta, c, ldc);
  product_by_operators(view_of(a, m, k, lda, torch::kFloat32).to(type_), weight.low().view({k, n}), beta, c, ldc);
}

void TileGemm::tn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
                  float* c, int64_t ldc) const {
  if (bf16_products(type_)) return bf16_weight_grad(m, n, k, a, lda, b, ldb, beta, c, ldc);
  if (type_ == torch::kFloat32) return weight_grad(m, n, k, a, lda, b, ldb, beta, c, ldc);
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
  if (bf16_products(type)) return bf16_parallel_tn(a, b);
  if (type != torch::kFloat32) return torch::mm(a.to(type).t(), b.to(type)).to(torch::kFloat32);
  const int64_t rows = a.size(0), m = a.size(1), n = b.size(1);
  torch::Tensor out = torch::empty({m, n});
  const float *x = a.const_data_ptr<float>(), *y = b.const_data_ptr<float>();
  float* c = out.mutable_data_ptr<float>();
  if (rows == 0) return out.zero_();
  if (panels::preferred() && m >= kFewColumns && n >= kFewColumns) {
    weight_grad_by_all(rows, m, n, x, y, c);
    return out;
  }
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
