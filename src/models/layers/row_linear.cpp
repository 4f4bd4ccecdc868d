#include "models/layers/row_linear.h"

#include <algorithm>
#include <bit>

#include "models/layers/gemm.h"
#include "models/layers/row_kernels.h"

namespace redline::models {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct FilledRowsFunction : torch::autograd::Function<FilledRowsFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x, int64_t type) {
    ctx->saved_data["rows"] = x.size(0);
    ctx->saved_data["type"] = static_cast<int64_t>(x.scalar_type());
    return filled_rows(x, static_cast<torch::ScalarType>(type));
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto type = static_cast<torch::ScalarType>(ctx->saved_data["type"].toInt());
    return {grads[0].narrow(0, 0, ctx->saved_data["rows"].toInt()).to(type), torch::Tensor()};
  }
};

bool is_low(torch::ScalarType type) { return type == torch::kBFloat16 || type == torch::kHalf; }

}  // namespace

int64_t filled_row_count(int64_t rows) {
  if (rows <= 0) return rows;
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows)));
  const int64_t unit = std::max<int64_t>(16, power / 16);
  return (rows + unit - 1) / unit * unit;
}

torch::Tensor filled_rows(const torch::Tensor& x, torch::ScalarType type) {
  const int64_t rows = x.size(0), filled = filled_row_count(rows);
  if (!is_low(type) || !x.device().is_cpu() || rows == filled) return x.to(type);
  torch::Tensor out = torch::empty({filled, x.size(1)}, x.options().dtype(type));
  out.narrow(0, 0, rows).copy_(x);
  out.narrow(0, rows, filled - rows).zero_();
  return out;
}

torch::ScalarType product_type(const torch::Tensor& x) {
  return x.scalar_type() == torch::kFloat32 && x.device().is_cpu() ? gemm_type() : x.scalar_type();
}

torch::Tensor row_linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  const torch::ScalarType type = product_type(x);
  if (!is_low(type) || !on_plain_cpu(x)) return at::linear(x, weight, bias);
  const torch::Tensor filled = FilledRowsFunction::apply(x, static_cast<int64_t>(type));
  return at::linear(filled, weight, bias).narrow(0, 0, x.size(0));
}

}  // namespace redline::models
