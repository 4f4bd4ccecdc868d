// The fast search runs in float over a transposed codebook, then settles every code within 1e-5 of the best in double:
// float alone flips tokens about once in a million, which would show against the reference.
#include "models/speech_ssl/quantizer.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "core/error.h"
#include "models/layers/simd_clones.h"

namespace redline::models::speech {

namespace quantizer_detail {

// dots[v] = sum_d x[d] * codes_t[d][v]; returns the largest.
REDLINE_SIMD_CLONES
void add_scaled(const float* __restrict codes, float x, int64_t n, float* __restrict dots) {
  for (int64_t v = 0; v < n; ++v) dots[v] += x * codes[v];
}
REDLINE_SIMD_CLONES
float largest(const float* __restrict values, int64_t n) {
  constexpr int64_t kWidth = 16;
  float best[kWidth];
  for (int64_t i = 0; i < kWidth; ++i) best[i] = values[0];
  int64_t v = 0;
  for (; v + kWidth <= n; v += kWidth)
    for (int64_t i = 0; i < kWidth; ++i) best[i] = values[v + i] > best[i] ? values[v + i] : best[i];
  float top = best[0];
  for (int64_t i = 1; i < kWidth; ++i) top = std::max(top, best[i]);
  for (; v < n; ++v) top = std::max(top, values[v]);
  return top;
}

}  // namespace quantizer_detail

torch::Tensor nearest_code_plain(const torch::Tensor& x_ND, const torch::Tensor& codes_VD) {
  return torch::matmul(x_ND.to(torch::kFloat64), codes_VD.to(torch::kFloat64).t()).argmax(1);
}

torch::Tensor nearest_code_fast(const torch::Tensor& x_ND, const torch::Tensor& codes_VD) {
  const torch::Tensor x = x_ND.contiguous(), codes = codes_VD.to(torch::kFloat64).contiguous();
  const torch::Tensor transposed = codes.to(torch::kFloat32).t().contiguous();
  const int64_t rows = x.size(0), dim = x.size(1), classes = codes.size(0);
  torch::Tensor out = torch::empty({rows}, torch::kInt64);
  const float* xs = x.const_data_ptr<float>();
  const float* float_codes = transposed.const_data_ptr<float>();
  const double* exact_codes = codes.const_data_ptr<double>();
  int64_t* indices = out.mutable_data_ptr<int64_t>();
  constexpr float kSlack = 1e-5f;  // far above the rounding of a float dot product of unit vectors
  at::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
    std::vector<float> dots(static_cast<size_t>(classes));
    for (int64_t row = begin; row < end; ++row) {
      const float* v = xs + row * dim;
      std::fill(dots.begin(), dots.end(), 0.0f);
      for (int64_t d = 0; d < dim; ++d)
        quantizer_detail::add_scaled(float_codes + d * classes, v[d], classes, dots.data());
      const float threshold = quantizer_detail::largest(dots.data(), classes) - kSlack;
      double best = -2.0;
      int64_t chosen = 0;
      for (int64_t c = 0; c < classes; ++c) {
        if (dots[static_cast<size_t>(c)] < threshold) continue;
        double exact = 0.0;
        for (int64_t d = 0; d < dim; ++d) exact += static_cast<double>(v[d]) * exact_codes[c * dim + d];
        if (exact > best) {
          best = exact;
          chosen = c;
        }
      }
      indices[row] = chosen;
    }
  });
  return out;
}

namespace {

// Frames past a clip's end project to zero, which is equally far from every unit vector: the reference's l2 search then
// picks the code whose norm was rounded lowest, and its cosine search the first. Computed in the reference's own
// layout, since another order of summation picks another code.
torch::Tensor code_nearest_zero(const std::string& dist_fn, const torch::Tensor& codebooks_HVD) {
  if (dist_fn == "cosine") return torch::zeros({codebooks_HVD.size(0)}, codebooks_HVD.options().dtype(torch::kInt64));
  return (-codebooks_HVD.transpose(1, 2)).norm(2, -2).argmin(-1);
}

}  // namespace

QuantizerImpl::QuantizerImpl(const QuantizerOptions& options) : options_(options) {
  proj_ = register_module("proj", Affine(std::vector<int64_t>{options.num_books * options.code_dim,
                                                              options.feat_in * options.combine_time_steps},
                                         false));
  codebooks_ = register_parameter(
      "codebooks", torch::empty({options.num_books, options.num_classes, options.code_dim}, torch::kFloat64),
      /*requires_grad=*/false);
  // With freeze: false NeMo leaves them trainable, but the index has no gradient, so they never move there either.
  proj_->weight.set_requires_grad(false);
}

void QuantizerImpl::initialise(uint64_t seed, const std::string& name) {
  xavier_normal(proj_->weight, seed, name + ".proj.weight");
  fill_normal(codebooks_, 1.0, seed, name + ".codebooks");
  const torch::NoGradGuard no_grad;
  codebooks_.div_(codebooks_.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12));
}

torch::Tensor QuantizerImpl::forward(const torch::Tensor& x_BTF, bool fused) {
  const torch::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const int64_t batch = x_BTF.size(0), time = x_BTF.size(1), steps = options_.combine_time_steps;
  if (time % steps != 0)
    throw DataError("the quantizer joins " + std::to_string(steps) + " frames per token, but the batch has " +
                    std::to_string(time) +
                    " frames: set model.quantizer.combine_time_steps to 1 with post_conv, or preprocessor.pad_to to a "
                    "multiple of it.");
  const torch::Tensor frames = x_BTF.to(torch::kFloat32).contiguous().view({batch * time / steps, -1});
  torch::Tensor x = torch::linear(frames, proj_->weight).view({-1, options_.num_books, options_.code_dim});
  x = x / x.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12);
  const torch::Tensor is_zero = x.abs().amax(-1) == 0.0;  // [N, books]
  const torch::Tensor at_zero = code_nearest_zero(options_.dist_fn, codebooks_);
  std::vector<torch::Tensor> books;
  for (int64_t h = 0; h < options_.num_books; ++h) {
    const torch::Tensor rows = x.select(1, h), codes = codebooks_[h];
    books.push_back(fused && rows.device().is_cpu() ? nearest_code_fast(rows, codes) : nearest_code_plain(rows, codes));
  }
  return torch::where(is_zero, at_zero, torch::stack(books, 1)).view({batch, time / steps, options_.num_books});
}

}  // namespace redline::models::speech
