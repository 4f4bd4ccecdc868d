// One softmax pass over the logits; the two backward products use LibTorch's matrix multiplication in the precision the
// forward product ran in. Where the processor has bfloat16 units (gemm_bf16.h) the logits exist only a tile of rows at
// a time, and what is kept for backward is rounded.
#include "models/layers/linear_cross_entropy.h"

#include <cmath>

#include "core/check.h"
#include "models/layers/gemm.h"
#include "models/layers/gemm_bf16.h"
#include "models/layers/hand_node.h"
#include "models/layers/kept_rows.h"
#include "models/layers/row_kernels.h"
#include "models/layers/row_linear.h"
#include "models/layers/softmax_rows.h"

namespace redline::models {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One row of logits -> softmax - onehot in place; returns nll. exp_row may write up to one vector past the row's end,
// so a ragged row is done in `padded`.
template <class T>
T softmax_minus_onehot_row(T* out, int64_t width, int64_t target, std::vector<T>& padded) {
  padded.resize(static_cast<size_t>(simd::round_up(width, simd::kLanes<T>)));
  T* row = width % simd::kLanes<T> == 0 ? out : padded.data();
  if (row == padded.data()) std::copy_n(out, width, row);
  const T top = max_row(row, width), at_target = row[target];
  const T sum = exp_row(row, width, width, top), factor = T(1) / sum;
  for (int64_t v = 0; v < width; ++v) out[v] = row[v] * factor;
  out[target] -= T(1);
  return top + std::log(sum) - at_target;
}

template <class T>
void softmax_minus_onehot(torch::Tensor& logits, const int64_t* target, T* nll) {
  const int64_t width = logits.size(1);
  T* data = logits.mutable_data_ptr<T>();
  for_each_row_block(logits.size(0), width, [&](int64_t begin, int64_t end, int64_t) {
    std::vector<T> padded;
    for (int64_t n = begin; n < end; ++n) nll[n] = softmax_minus_onehot_row(data + n * width, width, target[n], padded);
  });
}

struct BlockResult {
  torch::Tensor grad_logits;  // softmax - onehot, float32 or float64
  torch::ScalarType product_type;
};

BlockResult logits_block(const torch::Tensor& hidden, const torch::Tensor& weight, const torch::Tensor& target,
                         torch::Tensor nll) {
  torch::Tensor logits = at::mm(filled_rows(hidden, product_type(hidden)), weight.t()).narrow(0, 0, hidden.size(0));
  const torch::ScalarType type = logits.scalar_type();
  if (type != torch::kFloat64) logits = logits.to(torch::kFloat32);
  AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "linear_cross_entropy", [&] {
    softmax_minus_onehot<scalar_t>(logits, target.const_data_ptr<int64_t>(), nll.mutable_data_ptr<scalar_t>());
  });
  return {logits, type};
}

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& hidden, const torch::Tensor& weight,
                               const torch::Tensor& target, int64_t rows_per_block) {
    const int64_t rows = hidden.size(0);
    torch::Tensor nll = torch::empty({rows}, hidden.options());
    variable_list saved = {hidden, weight, target};
    torch::ScalarType type = hidden.scalar_type();
    for (int64_t begin = 0; begin < rows; begin += rows_per_block) {
      const int64_t count = std::min(rows_per_block, rows - begin);
      const BlockResult block = logits_block(hidden.narrow(0, begin, count), weight, target.narrow(0, begin, count),
                                             nll.narrow(0, begin, count));
      type = block.product_type;
      if (count == rows) saved.push_back(block.grad_logits);
    }
    ctx->save_for_backward(saved);
    ctx->saved_data["rows_per_block"] = rows_per_block;
    ctx->saved_data["product_type"] = static_cast<int64_t>(type);
    return nll;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto type = static_cast<torch::ScalarType>(ctx->saved_data["product_type"].toInt());
    const int64_t rows_per_block = ctx->saved_data["rows_per_block"].toInt();
    const torch::Tensor hidden = saved[0].to(type), weight = saved[1].to(type), &target = saved[2];
    // d nll_n scales a whole row of the logits' gradient: cheaper to scale the narrow sides of both products.
    const torch::Tensor grad = grads[0].unsqueeze(1), scaled = (saved[0] * grad).to(type);
    torch::Tensor grad_hidden = torch::empty_like(saved[0]), grad_weight;
    const int64_t rows = saved[0].size(0);
    torch::Tensor unused = torch::empty({std::min(rows, rows_per_block)}, saved[0].options());
    for (int64_t begin = 0; begin < rows; begin += rows_per_block) {
      const int64_t count = std::min(rows_per_block, rows - begin);
      const torch::Tensor block = saved.size() == 4
                                      ? saved[3]
                                      : logits_block(hidden.narrow(0, begin, count), weight,
                                                     target.narrow(0, begin, count), unused.narrow(0, 0, count))
                                            .grad_logits;
      const torch::Tensor grad_logits = filled_rows(block, type);
      grad_hidden.narrow(0, begin, count).copy_(at::mm(grad_logits, weight).narrow(0, 0, count));
      const torch::Tensor part =
          at::mm(grad_logits.t(), filled_rows(scaled.narrow(0, begin, count), type)).to(saved[1].scalar_type());
      grad_weight = grad_weight.defined() ? grad_weight.add_(part) : part;
    }
    grad_hidden.mul_(grad);
    return {grad_hidden, grad_weight, torch::Tensor(), torch::Tensor()};
  }
};

constexpr int64_t kLossTile = 64;  // rows whose logits exist at a time

enum LossInput : size_t { kLossHidden, kLossWeight, kNumLossInputs };

struct LossInBf16 : HandNode {
  torch::Tensor rounded, grad_logits,
      target;  // [N, C], [N, V] both rounded; the second undefined: made again in blocks
  int64_t rows_per_block = 0;
  void release_intermediates() override {
    for (torch::Tensor* t : {&rounded, &grad_logits, &target}) t->reset();
  }
  std::string name() const override { return "LinearCrossEntropyBackward"; }
  variable_list apply(variable_list&& grads) override;
};

// softmax - onehot of rows [first, first + count) into `kept` (rounded, from its row 0) unless it is undefined.
void rounded_logit_grads(const torch::Tensor& rounded, int64_t first, int64_t count, const GemmOperand& weight,
                         int64_t depth, int64_t classes, const int64_t* target, torch::Tensor& kept, float* nll) {
  for_row_tiles(count, kLossTile, [&](int64_t begin, int64_t end) {
    std::vector<float> logits(static_cast<size_t>((end - begin) * classes)), padded;
    bf16_multiply(end - begin, classes, depth, rounded, first + begin, *weight.low_panels_for(GemmUse::kNt), 0.0f,
                  logits.data(), classes);
    for (int64_t n = begin; n < end; ++n) {
      const float loss =
          softmax_minus_onehot_row(logits.data() + (n - begin) * classes, classes, target[first + n], padded);
      if (nll != nullptr) nll[first + n] = loss;
    }
    if (kept.defined()) bf16_round(logits.data(), end - begin, classes, classes, kept, begin);
  });
}

variable_list LossInBf16::apply(variable_list&& grads) {
  const at::NoGradGuard no_grad;
  variable_list out(kNumLossInputs);
  if (!grads[0].defined()) return out;
  const torch::Tensor grad = grads[0].to(torch::kFloat32).contiguous(), weight = input(kLossWeight).contiguous();
  const int64_t rows = rounded.size(0), depth = weight.size(1), classes = weight.size(0);
  // d nll_n scales a whole row of the logits' gradient: cheaper to scale the narrow sides of both products.
  const torch::Tensor scaled = rounded.narrow(1, 0, depth).to(torch::kFloat32) * grad.unsqueeze(1);
  const GemmOperand forward_weight(weight, torch::kBFloat16, GemmUse::kNt);
  const GemmOperand back_weight(weight, torch::kBFloat16, GemmUse::kNn);
  torch::Tensor grad_hidden = torch::empty({rows, depth}), grad_weight;
  const float* factor = grad.const_data_ptr<float>();
  float* to = grad_hidden.mutable_data_ptr<float>();
  for (int64_t first = 0; first < rows; first += rows_per_block) {
    const int64_t count = std::min(rows_per_block, rows - first);
    torch::Tensor block = grad_logits;
    if (!block.defined()) {
      block = bf16_rounded_rows(count, classes);
      rounded_logit_grads(rounded, first, count, forward_weight, depth, classes, target.const_data_ptr<int64_t>(),
                          block, nullptr);
    }
    for_row_tiles(count, 128, [&](int64_t begin, int64_t end) {
      float* tile = to + (first + begin) * depth;
      bf16_multiply(end - begin, depth, classes, block, begin, *back_weight.low_panels_for(GemmUse::kNn), 0.0f, tile,
                    depth);
      for (int64_t n = begin; n < end; ++n)
        for (int64_t c = 0; c < depth; ++c) tile[(n - begin) * depth + c] *= factor[first + n];
    });
    const torch::Tensor part = bf16_parallel_tn(block, scaled.narrow(0, first, count));
    grad_weight = grad_weight.defined() ? grad_weight.add_(part) : part;
  }
  out[kLossHidden] = grad_hidden;
  out[kLossWeight] = grad_weight.narrow(0, 0, classes);  // an odd number of classes had a zero more
  return out;
}

torch::Tensor linear_cross_entropy_bf16(const torch::Tensor& hidden_in, const torch::Tensor& weight_in,
                                        const torch::Tensor& target, int64_t rows_per_block) {
  const auto node = make_node<LossInBf16>({hidden_in, weight_in}, /*let_go=*/1);
  torch::Tensor nll;
  {
    const at::NoGradGuard no_grad;
    const torch::Tensor hidden = hidden_in.contiguous(), weight = weight_in.contiguous();
    const int64_t rows = hidden.size(0), depth = hidden.size(1), classes = weight.size(0);
    const GemmOperand operand(weight, torch::kBFloat16, GemmUse::kNt);
    torch::Tensor rounded = bf16_rounded_rows(rows, depth), kept;
    if (node && rows_per_block >= rows) kept = bf16_rounded_rows(rows, classes);
    nll = torch::empty({rows});
    for_row_tiles(rows, 512, [&](int64_t begin, int64_t end) {
      bf16_round(hidden.const_data_ptr<float>() + begin * depth, end - begin, depth, depth, rounded, begin);
    });
    rounded_logit_grads(rounded, 0, rows, operand, depth, classes, target.const_data_ptr<int64_t>(), kept,
                        nll.mutable_data_ptr<float>());
    if (node) {
      node->rounded = rounded;
      node->grad_logits = kept;
      node->target = target;
      node->rows_per_block = rows_per_block;
    }
  }
  attach(nll, node);
  return nll;
}

}  // namespace

torch::Tensor linear_cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                                   const torch::Tensor& target, int64_t budget_bytes) {
  REDLINE_CHECK(
      hidden.dim() == 2 && weight.dim() == 2 && hidden.size(1) == weight.size(1) && hidden.size(0) == target.size(0),
      "hidden is [N, C], weight [V, C], target [N]");
  if (hidden.size(0) == 0) return hidden.sum(1);
  if (!row_kernels_fit(hidden) || !on_plain_cpu(target)) return linear_cross_entropy_plain(hidden, weight, target);
  const torch::Tensor checked = target.contiguous();
  const auto [low, high] = checked.aminmax();
  REDLINE_CHECK(low.item<int64_t>() >= 0 && high.item<int64_t>() < weight.size(0), "targets are row numbers of weight");
  const int64_t row_bytes = weight.size(0) * hidden.element_size();
  const int64_t rows_per_block = std::clamp<int64_t>(budget_bytes / std::max<int64_t>(1, row_bytes), 1, hidden.size(0));
  if (hidden.scalar_type() == torch::kFloat32 && weight.scalar_type() == torch::kFloat32 && bf16_products(gemm_type()))
    return linear_cross_entropy_bf16(hidden, weight, checked, rows_per_block);
  return CrossEntropyFunction::apply(hidden.contiguous(), weight, checked, rows_per_block);
}

torch::Tensor linear_cross_entropy_plain(const torch::Tensor& hidden, const torch::Tensor& weight,
                                         const torch::Tensor& target) {
  torch::Tensor logits = at::linear(hidden, weight);
  if (logits.scalar_type() != torch::kFloat64) logits = logits.to(torch::kFloat32);
  return at::cross_entropy_loss(logits, target, {}, at::Reduction::None);
}

}  // namespace redline::models
