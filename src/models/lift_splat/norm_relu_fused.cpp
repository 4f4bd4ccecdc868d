#include "models/lift_splat/norm_relu_fused.h"

#include <cmath>

#include "models/layers/gemm.h"
#include "models/layers/hand_node.h"
#include "models/layers/kept_rows.h"
#include "models/layers/row_kernels.h"
#include "models/layers/simd_clones.h"

namespace redline::models::lift_splat::fused {

namespace {

using torch::autograd::variable_list;

constexpr int64_t kSumRows = 256;  // rows summed in float before they go to double

REDLINE_SIMD_CLONES void norm_row_sums(const float* __restrict x, int64_t n, float* __restrict sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
}
REDLINE_SIMD_CLONES void norm_row_squares(const float* __restrict x, const float* __restrict mean, int64_t n,
                                          float* __restrict sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] += (x[i] - mean[i]) * (x[i] - mean[i]);
}
REDLINE_SIMD_CLONES void norm_row_apply(const float* __restrict x, const float* __restrict scale,
                                        const float* __restrict shift, int64_t n, bool relu, float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale[i] + shift[i];
  if (relu)
    for (int64_t i = 0; i < n; ++i) out[i] = out[i] > 0.0f ? out[i] : 0.0f;
}
REDLINE_SIMD_CLONES void norm_row_apply_add(const float* __restrict x, const float* __restrict scale,
                                            const float* __restrict shift, const float* __restrict residual, int64_t n,
                                            float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) {
    const float y = x[i] * scale[i] + shift[i] + residual[i];
    out[i] = y > 0.0f ? y : 0.0f;
  }
}
// masked = gradient where the result was above 0; sums of it and of it times the centred input.
REDLINE_SIMD_CLONES void norm_row_gradient(const float* __restrict g, const float* __restrict out,
                                           const float* __restrict x, const float* __restrict mean, int64_t n,
                                           float* __restrict masked, float* __restrict sum, float* __restrict sum_x) {
  for (int64_t i = 0; i < n; ++i) {
    const float value = out[i] > 0.0f ? g[i] : 0.0f;
    masked[i] = value;
    sum[i] += value;
    sum_x[i] += value * (x[i] - mean[i]);
  }
}
REDLINE_SIMD_CLONES void norm_row_gradient_linear(const float* __restrict g, const float* __restrict x,
                                                  const float* __restrict mean, int64_t n, float* __restrict sum,
                                                  float* __restrict sum_x) {
  for (int64_t i = 0; i < n; ++i) {
    sum[i] += g[i];
    sum_x[i] += g[i] * (x[i] - mean[i]);
  }
}
REDLINE_SIMD_CLONES void norm_row_open(const float* __restrict out, int64_t n, uint8_t* __restrict open) {
  for (int64_t i = 0; i < n; ++i) open[i] = out[i] > 0.0f ? 1 : 0;
}
REDLINE_SIMD_CLONES void norm_row_gate(const float* __restrict g, const uint8_t* __restrict open, int64_t n,
                                       float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = open[i] != 0 ? g[i] : 0.0f;
}
REDLINE_SIMD_CLONES void norm_row_centre(const float* __restrict x, const float* __restrict mean, int64_t n,
                                         float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] - mean[i];
}
// out = a g - b - c (x - mean); `out` may be `g`.
REDLINE_SIMD_CLONES void norm_row_input(const float* g, const float* __restrict x, const float* __restrict mean,
                                        const float* __restrict a, const float* __restrict b, const float* __restrict c,
                                        int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] * g[i] - b[i] - c[i] * (x[i] - mean[i]);
}

// Column sums of all rows: add(row, sums) adds a row to `lines` lines of float sums, which go to double every kSumRows.
template <class Add>
std::vector<torch::Tensor> summed(int64_t rows, int64_t n, int64_t lines, const Add& add) {
  ColumnSums<double> total(n, lines);
  for_each_row_block(rows, n, [&](int64_t begin, int64_t end, int64_t slot) {
    std::vector<float> sums(static_cast<size_t>(lines * n));
    for (int64_t first = begin; first < end; first += kSumRows) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (int64_t r = first; r < std::min(end, first + kSumRows); ++r) add(r, sums.data());
      for (int64_t line = 0; line < lines; ++line) {
        double* to = total.line(slot, line);
        for (int64_t i = 0; i < n; ++i) to[i] += static_cast<double>(sums[static_cast<size_t>(line * n + i)]);
      }
    }
  });
  std::vector<torch::Tensor> out;
  for (int64_t line = 0; line < lines; ++line) out.push_back(total.total(line));
  return out;
}

torch::Tensor as_rows(const torch::Tensor& x_MCHW) {
  return x_MCHW.to(torch::kFloat32).permute({0, 2, 3, 1}).contiguous();
}

enum NormInput : size_t { kNormX, kResidual, kNormB, kNormW, kNormCount };
constexpr size_t kNotRead = 3;  // of the inputs, in backward: what is needed of them is kept beside

struct NormReluBackward : HandNode {
  bool relu = true, training = true;
  // The input's rows and the result without its history, [M, H, W, C]. Where products run in bfloat16 the rows lie
  // around their mean (which is then 0 here) and are rounded, and of the result only where it is above 0 is kept.
  KeptRows rows;
  torch::Tensor result, open, mean, rstd;
  torch::ScalarType type = torch::kFloat32, residual_type = torch::kFloat32;
  void release_intermediates() override {
    rows.reset();
    result.reset();
    open.reset();
  }
  std::string name() const override { return "NormReluBackward"; }
  variable_list apply(variable_list&& grads) override;
};

variable_list NormReluBackward::apply(variable_list&& grads) {
  const at::NoGradGuard no_grad;
  variable_list out(kNormCount);
  if (!grads[0].defined()) return out;
  const torch::Tensor g = as_rows(grads[0]), weight = input(kNormW);
  const int64_t n = weight.size(0), count = g.numel() / n;
  const float *gp = g.const_data_ptr<float>(), *mp = mean.const_data_ptr<float>();
  const auto x_row = [&](int64_t r) {
    static thread_local std::vector<float> widened;
    return rows.rows(r, r + 1, widened);
  };
  torch::Tensor gx = torch::empty_like(g), masked;
  std::vector<torch::Tensor> sums;
  if (relu && open.defined()) {
    masked = wants(kResidual) ? torch::empty_like(g) : gx;
    const uint8_t* op = open.const_data_ptr<uint8_t>();
    float* to = masked.mutable_data_ptr<float>();
    sums = summed(count, n, 2, [&](int64_t r, float* line) {
      norm_row_gate(gp + r * n, op + r * n, n, to + r * n);
      norm_row_gradient_linear(to + r * n, x_row(r), mp, n, line, line + n);
    });
  } else if (relu) {
    masked = wants(kResidual) ? torch::empty_like(g) : gx;
    const float* rp = result.const_data_ptr<float>();
    float* to = masked.mutable_data_ptr<float>();
    sums = summed(count, n, 2, [&](int64_t r, float* line) {
      norm_row_gradient(gp + r * n, rp + r * n, x_row(r), mp, n, to + r * n, line, line + n);
    });
  } else {
    masked = g;
    sums = summed(count, n, 2, [&](int64_t r, float* line) {
      norm_row_gradient_linear(gp + r * n, x_row(r), mp, n, line, line + n);
    });
  }
  const torch::Tensor inverse = rstd.to(torch::kFloat64), scale = inverse * weight.to(torch::kFloat64);
  const double share = training ? 1.0 / static_cast<double>(count) : 0.0;
  const torch::Tensor a = scale.to(torch::kFloat32), b = (scale * sums[0] * share).to(torch::kFloat32),
                      c = (scale * inverse * inverse * sums[1] * share).to(torch::kFloat32);
  const float *ap = a.const_data_ptr<float>(), *bp = b.const_data_ptr<float>(), *cp = c.const_data_ptr<float>(),
              *from = masked.const_data_ptr<float>();
  float* to = gx.mutable_data_ptr<float>();
  for_each_row_block(count, n, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t r = begin; r < end; ++r) norm_row_input(from + r * n, x_row(r), mp, ap, bp, cp, n, to + r * n);
  });
  out[kNormX] = gx.permute({0, 3, 1, 2}).to(type);
  out[kNormW] = (sums[1] * inverse).to(torch::kFloat32);
  out[kNormB] = sums[0].to(torch::kFloat32);
  if (wants(kResidual)) out[kResidual] = masked.permute({0, 3, 1, 2}).to(residual_type);
  return out;
}

}  // namespace

bool norm_fits(const torch::Tensor& x_MCHW, const task::Context& ctx) {
  return on_plain_cpu(x_MCHW) && x_MCHW.scalar_type() != torch::kFloat64 &&
         (ctx.collective == nullptr || ctx.collective->world_size() == 1);
}

torch::Tensor norm_relu(const BatchNorm& norm, const torch::Tensor& x_MCHW, const torch::Tensor& residual, bool relu,
                        task::Context& ctx) {
  const auto node = make_node<NormReluBackward>({x_MCHW, residual, norm->bias, norm->weight}, kNotRead);
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const torch::Tensor x = as_rows(x_MCHW);
    const int64_t n = norm->weight.size(0), count = x.numel() / n;
    const float* xp = x.const_data_ptr<float>();
    torch::Tensor mean = norm->running_mean, variance = norm->running_var.to(torch::kFloat64);
    if (ctx.training()) {
      mean = (summed(count, n, 1, [&](int64_t r, float* line) { norm_row_sums(xp + r * n, n, line); })[0] /
              static_cast<double>(count))
                 .to(torch::kFloat32);
      const float* mp = mean.const_data_ptr<float>();
      variance = summed(count, n, 1, [&](int64_t r, float* line) { norm_row_squares(xp + r * n, mp, n, line); })[0] /
                 static_cast<double>(count);
      norm->defer(mean, variance.to(torch::kFloat32), static_cast<double>(count), ctx);
    }
    const torch::Tensor rstd = (variance + norm->eps).rsqrt();
    const torch::Tensor scale64 = rstd * norm->weight.to(torch::kFloat64);
    const torch::Tensor scale = scale64.to(torch::kFloat32),
                        shift =
                            (norm->bias.to(torch::kFloat64) - mean.to(torch::kFloat64) * scale64).to(torch::kFloat32);
    const torch::Tensor base = residual.defined() ? as_rows(residual) : torch::Tensor();
    torch::Tensor rows_out = torch::empty_like(x);
    const float *sp = scale.const_data_ptr<float>(), *hp = shift.const_data_ptr<float>(),
                *bp = base.defined() ? base.const_data_ptr<float>() : nullptr;
    float* to = rows_out.mutable_data_ptr<float>();
    const bool rounded = node && bf16_products(gemm_type());
    torch::Tensor centred, open;
    if (rounded) {
      centred = torch::empty(x.sizes(), torch::kBFloat16);
      if (relu) open = torch::empty(x.sizes(), torch::kUInt8);
    }
    const float* middle = mean.const_data_ptr<float>();
    for_each_row_block(count, n, [&](int64_t begin, int64_t end, int64_t) {
      std::vector<float> line(static_cast<size_t>(rounded ? n : 0));
      for (int64_t r = begin; r < end; ++r) {
        if (bp != nullptr)
          norm_row_apply_add(xp + r * n, sp, hp, bp + r * n, n, to + r * n);
        else
          norm_row_apply(xp + r * n, sp, hp, n, relu, to + r * n);
        if (!rounded) continue;
        norm_row_centre(xp + r * n, middle, n, line.data());
        KeptRows::write(line.data(), n, centred, r * n);
        if (relu) norm_row_open(to + r * n, n, open.mutable_data_ptr<uint8_t>() + r * n);
      }
    });
    out = rows_out.permute({0, 3, 1, 2});
    if (node) {
      node->relu = relu;
      node->training = ctx.training();
      node->rows = KeptRows(rounded ? centred : x);
      if (!rounded) node->result = rows_out;
      node->open = open;
      node->mean = rounded ? torch::zeros({n}) : mean.detach();
      node->rstd = rstd;
      node->type = x_MCHW.scalar_type();
      if (residual.defined()) node->residual_type = residual.scalar_type();
    }
  }
  attach(out, node);
  return out;
}

}  // namespace redline::models::lift_splat::fused
