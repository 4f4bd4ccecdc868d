// Row kernels of residual_norm. Statistics are two-pass over a row that sits in the first-level cache: mean, then the
// sum of squared deviations, which keeps full precision when the mean is large.
#include "models/layers/residual_norm.h"

#include <cmath>

#include "core/check.h"
#include "models/layers/gemm.h"
#include "models/layers/gemm_bf16.h"
#include "models/layers/row_kernels.h"
#include "models/layers/simd.h"

namespace redline::models {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct NormState : torch::CustomClassHolder {
  Rows rows;
  DropoutDraw dropout;
};

template <class T>
T sum_of(const T* x, int64_t count) {
  simd::Vec<T> sum{};
  int64_t c = 0;
  for (; c + simd::kLanes<T> <= count; c += simd::kLanes<T>) sum += simd::load(x + c);
  T total = simd::sum_lanes<T>(sum);
  for (; c < count; ++c) total += x[c];
  return total;
}

template <class T>
T squares_around(const T* x, int64_t count, T mean) {
  simd::Vec<T> sum{};
  int64_t c = 0;
  for (; c + simd::kLanes<T> <= count; c += simd::kLanes<T>) {
    const simd::Vec<T> d = simd::load(x + c) - mean;
    sum += d * d;
  }
  T total = simd::sum_lanes<T>(sum);
  for (; c < count; ++c) total += (x[c] - mean) * (x[c] - mean);
  return total;
}

template <class T>
struct NormForward {
  const NormState& state;
  int64_t width;
  T epsilon;
  const T *x, *h, *bias, *weight, *shift;
  T *residual, *normed, *mean, *rstd;

  void rows(int64_t begin, int64_t end) const {
    std::vector<float> mask(static_cast<size_t>(simd::round_up(width, 32)), 1.0f);
    for (int64_t n = begin; n < end; ++n) {
      const T *xn = x + n * width, *hn = h + n * width;
      T *r = residual + n * width, *y = normed + n * width;
      if (state.dropout.active()) {
        const auto first = static_cast<uint64_t>(state.rows->time[static_cast<size_t>(n)] * width);
        fill_mask(state.dropout, state.rows->sample_key(n), first, width, mask.data());
        for (int64_t c = 0; c < width; ++c)
          r[c] = xn[c] + (hn[c] + bias[c]) * static_cast<T>(mask[static_cast<size_t>(c)]);
      } else {
        for (int64_t c = 0; c < width; ++c) r[c] = xn[c] + (hn[c] + bias[c]);
      }
      const T m = sum_of(r, width) / static_cast<T>(width);
      const T s = T(1) / std::sqrt(squares_around(r, width, m) / static_cast<T>(width) + epsilon);
      for (int64_t c = 0; c < width; ++c) y[c] = (r[c] - m) * s * weight[c] + shift[c];
      mean[n] = m;
      rstd[n] = s;
    }
  }
};

template <class T>
struct NormBackward {
  const NormState& state;
  int64_t width;
  const T *grad_residual, *grad_normed;  // either may be null
  const T *residual, *mean, *rstd, *weight;
  T *grad_x, *grad_h;   // grad_h is null without dropout: it equals grad_x
  ColumnSums<T>& sums;  // weight, shift, bias

  void rows(int64_t begin, int64_t end, int64_t slot) const {
    std::vector<float> mask(static_cast<size_t>(simd::round_up(width, 32)), 1.0f);
    T* bias_sum = sums.line(slot, 2);
    for (int64_t n = begin; n < end; ++n) {
      T* dx = grad_x + n * width;
      norm_row(n, dx, slot);
      if (grad_residual != nullptr)
        for (int64_t c = 0; c < width; ++c) dx[c] += grad_residual[n * width + c];
      const T* dh = dx;
      if (grad_h != nullptr) {
        const auto first = static_cast<uint64_t>(state.rows->time[static_cast<size_t>(n)] * width);
        fill_mask(state.dropout, state.rows->sample_key(n), first, width, mask.data());
        T* out = grad_h + n * width;
        for (int64_t c = 0; c < width; ++c) out[c] = dx[c] * static_cast<T>(mask[static_cast<size_t>(c)]);
        dh = out;
      }
      for (int64_t c = 0; c < width; ++c) bias_sum[c] += dh[c];
    }
  }

  void norm_row(int64_t n, T* dx, int64_t slot) const {
    if (grad_normed == nullptr) {
      std::fill_n(dx, width, T(0));
      return;
    }
    T *weight_sum = sums.line(slot, 0), *shift_sum = sums.line(slot, 1);
    const T *dy = grad_normed + n * width, *r = residual + n * width;
    const T m = mean[n], s = rstd[n];
    simd::Vec<T> sum_g{}, sum_gx{};
    int64_t c = 0;
    for (; c + simd::kLanes<T> <= width; c += simd::kLanes<T>) {
      const simd::Vec<T> grad = simd::load(dy + c), hat = (simd::load(r + c) - m) * s;
      const simd::Vec<T> g = grad * simd::load(weight + c);
      sum_g += g;
      sum_gx += g * hat;
      simd::store(weight_sum + c, simd::load(weight_sum + c) + grad * hat);
      simd::store(shift_sum + c, simd::load(shift_sum + c) + grad);
    }
    T total_g = simd::sum_lanes<T>(sum_g), total_gx = simd::sum_lanes<T>(sum_gx);
    for (; c < width; ++c) {
      const T hat = (r[c] - m) * s;
      total_g += dy[c] * weight[c];
      total_gx += dy[c] * weight[c] * hat;
      weight_sum[c] += dy[c] * hat;
      shift_sum[c] += dy[c];
    }
    total_g /= static_cast<T>(width);
    total_gx /= static_cast<T>(width);
    for (c = 0; c < width; ++c) dx[c] = s * (dy[c] * weight[c] - total_g - (r[c] - m) * s * total_gx);
  }
};

struct ResidualNormFunction : torch::autograd::Function<ResidualNormFunction> {
  static variable_list forward(AutogradContext* ctx, const torch::Tensor& x, const torch::Tensor& h,
                               const torch::Tensor& bias, const torch::Tensor& weight, const torch::Tensor& shift,
                               double epsilon, const c10::intrusive_ptr<NormState>& state) {
    const int64_t rows = x.size(0), width = x.size(1);
    torch::Tensor residual = torch::empty_like(x), normed = torch::empty_like(x);
    torch::Tensor mean = torch::empty({rows}, x.options()), rstd = torch::empty({rows}, x.options());
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "residual_norm", [&] {
      using T = scalar_t;
      const NormForward<T> kernel{*state,
                                  width,
                                  static_cast<T>(epsilon),
                                  x.const_data_ptr<T>(),
                                  h.const_data_ptr<T>(),
                                  bias.const_data_ptr<T>(),
                                  weight.const_data_ptr<T>(),
                                  shift.const_data_ptr<T>(),
                                  residual.mutable_data_ptr<T>(),
                                  normed.mutable_data_ptr<T>(),
                                  mean.mutable_data_ptr<T>(),
                                  rstd.mutable_data_ptr<T>()};
      for_each_row_block(rows, width, [&](int64_t begin, int64_t end, int64_t) { kernel.rows(begin, end); });
    });
    // Rounded, what lies around the row's mean is kept: rounding the sum itself would lose it where the mean is large.
    const bool rounded = x.scalar_type() == torch::kFloat32 && bf16_products(gemm_type());
    if (rounded)
      ctx->save_for_backward(
          {(residual - mean.unsqueeze(1)).to(torch::kBFloat16), torch::zeros({rows}, x.options()), rstd, weight});
    else
      ctx->save_for_backward({residual, mean, rstd, weight});
    ctx->saved_data["state"] = c10::IValue::make_capsule(state);
    ctx->set_materialize_grads(false);
    return {residual, normed};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list out(7);
    if (!grads[0].defined() && !grads[1].defined()) return out;
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor residual = saved[0].scalar_type() == torch::kBFloat16 ? saved[0].to(torch::kFloat32) : saved[0];
    const auto& state = *static_cast<NormState*>(ctx->saved_data["state"].toCapsule().get());
    const int64_t rows = residual.size(0), width = residual.size(1);
    const torch::Tensor grad_residual = grads[0].defined() ? grads[0].contiguous() : torch::Tensor();
    const torch::Tensor grad_normed = grads[1].defined() ? grads[1].contiguous() : torch::Tensor();
    torch::Tensor grad_x = torch::empty_like(residual);
    torch::Tensor grad_h = state.dropout.active() ? torch::empty_like(residual) : grad_x;
    AT_DISPATCH_FLOATING_TYPES(residual.scalar_type(), "residual_norm_backward", [&] {
      using T = scalar_t;
      ColumnSums<T> sums(width, 3);
      const NormBackward<T> kernel{state,
                                   width,
                                   grad_residual.defined() ? grad_residual.const_data_ptr<T>() : nullptr,
                                   grad_normed.defined() ? grad_normed.const_data_ptr<T>() : nullptr,
                                   residual.const_data_ptr<T>(),
                                   saved[1].const_data_ptr<T>(),
                                   saved[2].const_data_ptr<T>(),
                                   saved[3].const_data_ptr<T>(),
                                   grad_x.mutable_data_ptr<T>(),
                                   state.dropout.active() ? grad_h.mutable_data_ptr<T>() : nullptr,
                                   sums};
      for_each_row_block(rows, width, [&](int64_t begin, int64_t end, int64_t slot) { kernel.rows(begin, end, slot); });
      out[3] = sums.total(0);
      out[4] = sums.total(1);
      out[2] = sums.total(2);
    });
    out[0] = grad_x;
    out[1] = grad_h;
    return out;
  }
};

}  // namespace

ResidualNorm residual_norm(const torch::Tensor& x, const torch::Tensor& h, const torch::Tensor& bias, const Rows& rows,
                           const DropoutDraw& dropout, const NormWeights& norm) {
  REDLINE_CHECK(x.sizes() == h.sizes() && x.size(0) == rows->num_rows(), "residual and branch have the same rows");
  if (!row_kernels_fit(x)) return residual_norm_plain(x, h, bias, rows, dropout, norm);
  auto state = c10::make_intrusive<NormState>();
  state->rows = rows;
  state->dropout = dropout;
  const auto type = x.scalar_type();
  const variable_list out = ResidualNormFunction::apply(x.contiguous(), h.to(type).contiguous(), bias.to(type),
                                                        norm.weight.to(type), norm.shift.to(type), norm.epsilon, state);
  return {out[0], out[1]};
}

ResidualNorm residual_norm_plain(const torch::Tensor& x, const torch::Tensor& h, const torch::Tensor& bias,
                                 const Rows& rows, const DropoutDraw& dropout, const NormWeights& norm) {
  torch::Tensor branch = h.to(x.scalar_type()) + bias;
  if (dropout.active()) branch = branch * mask_tensor(dropout, *rows, x.size(1)).to(x.options());
  const torch::Tensor residual = x + branch;
  return {residual, at::layer_norm(residual, {x.size(1)}, norm.weight, norm.shift, norm.epsilon)};
}

}  // namespace redline::models
