#include "models/layers/row_linear.h"

#include <algorithm>
#include <bit>

#include "models/layers/gemm.h"
#include "models/layers/gemm_bf16.h"
#include "models/layers/hand_node.h"
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

constexpr int64_t kTile = 128;  // rows of a tile: with a panel of the weight they stay in the second-level cache

enum RowLinearInput : size_t { kX, kWeight, kBias, kNumInputs };

// The layer where the processor has bfloat16 units. Kept for backward: the rounded rows, half as long as the input's.
struct RowLinearBackward : HandNode {
  torch::Tensor rounded;
  void release_intermediates() override { rounded.reset(); }
  std::string name() const override { return "RowLinearBackward"; }
  variable_list apply(variable_list&& grads) override {
    const at::NoGradGuard no_grad;
    variable_list out(kNumInputs);
    if (!grads[0].defined()) return out;
    const torch::Tensor g = grads[0].to(torch::kFloat32).contiguous(), weight = input(kWeight).contiguous();
    const int64_t rows = g.size(0), wide = g.size(1), narrow = weight.size(1);
    const float* from = g.const_data_ptr<float>();
    if (wants(kX)) {
      const GemmOperand operand(weight, torch::kBFloat16, GemmUse::kNn);
      torch::Tensor gx = torch::empty({rows, narrow});
      float* to = gx.mutable_data_ptr<float>();
      for_row_tiles(rows, kTile, [&](int64_t begin, int64_t end) {
        TileGemm(torch::kBFloat16)
            .nn(end - begin, narrow, wide, from + begin * wide, wide, operand, 0.0f, to + begin * narrow, narrow);
      });
      out[kX] = gx;
    }
    if (wants(kWeight)) {
      const torch::Tensor gw = bf16_parallel_tn(g, rounded);
      out[kWeight] = gw.size(1) == narrow ? gw : gw.narrow(1, 0, narrow);  // an odd length had a zero more
    }
    if (wants(kBias)) out[kBias] = g.sum(0);
    return out;
  }
};

torch::Tensor row_linear_bf16(const torch::Tensor& x_in, const torch::Tensor& weight_in, const torch::Tensor& bias) {
  const auto node = make_node<RowLinearBackward>({x_in, weight_in, bias}, /*let_go=*/1);
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const torch::Tensor x = x_in.contiguous(), weight = weight_in.contiguous();
    const torch::Tensor shift = bias.defined() ? bias.contiguous() : torch::Tensor();
    const int64_t rows = x.size(0), narrow = x.size(1), wide = weight.size(0);
    const GemmOperand operand(weight, torch::kBFloat16, GemmUse::kNt);
    torch::Tensor rounded = bf16_rounded_rows(rows, narrow);
    out = torch::empty({rows, wide});
    const float *from = x.const_data_ptr<float>(), *start = bias.defined() ? shift.const_data_ptr<float>() : nullptr;
    float* to = out.mutable_data_ptr<float>();
    for_row_tiles(rows, kTile, [&](int64_t begin, int64_t end) {
      bf16_round(from + begin * narrow, end - begin, narrow, narrow, rounded, begin);
      if (start != nullptr)
        for (int64_t i = begin; i < end; ++i) std::copy_n(start, wide, to + i * wide);
      bf16_multiply(end - begin, wide, narrow, rounded, begin, *operand.low_panels_for(GemmUse::kNt),
                    start != nullptr ? 1.0f : 0.0f, to + begin * wide, wide);
    });
    if (node) node->rounded = rounded;
  }
  attach(out, node);
  return out;
}

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
  // Rows may come rounded, from operators that autocast ran in the low precision (attention of narrow heads).
  if (bf16_products(type) && weight.scalar_type() == torch::kFloat32)
    return row_linear_bf16(x.to(torch::kFloat32), weight, bias);
  const torch::Tensor filled = FilledRowsFunction::apply(x, static_cast<int64_t>(type));
  return at::linear(filled, weight, bias).narrow(0, 0, x.size(0));
}

}  // namespace redline::models
