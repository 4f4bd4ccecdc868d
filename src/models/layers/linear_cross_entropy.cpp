// One softmax pass over the logits; the two backward products use LibTorch's matrix multiplication in the precision the
// forward product ran in.
#include "models/layers/linear_cross_entropy.h"

#include <cmath>

#include "core/check.h"
#include "models/layers/row_kernels.h"
#include "models/layers/row_linear.h"
#include "models/layers/softmax_rows.h"

namespace redline::models {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// logits -> softmax - onehot in place; nll out.
template <class T>
void softmax_minus_onehot(torch::Tensor& logits, const int64_t* target, T* nll) {
  const int64_t width = logits.size(1);
  T* data = logits.mutable_data_ptr<T>();
  for_each_row_block(logits.size(0), width, [&](int64_t begin, int64_t end, int64_t) {
    std::vector<T> padded(static_cast<size_t>(simd::round_up(width, simd::kLanes<T>)));
    for (int64_t n = begin; n < end; ++n) {
      // exp_row may write up to one vector past the row's end, so a ragged row is done in a buffer.
      T* row = width % simd::kLanes<T> == 0 ? data + n * width : padded.data();
      if (row == padded.data()) std::copy_n(data + n * width, width, row);
      const T top = max_row(row, width), at_target = row[target[n]];
      const T sum = exp_row(row, width, width, top), factor = T(1) / sum;
      nll[n] = top + std::log(sum) - at_target;
      T* out = data + n * width;
      for (int64_t v = 0; v < width; ++v) out[v] = row[v] * factor;
      out[target[n]] -= T(1);
    }
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
  return CrossEntropyFunction::apply(hidden.contiguous(), weight, checked, rows_per_block);
}

torch::Tensor linear_cross_entropy_plain(const torch::Tensor& hidden, const torch::Tensor& weight,
                                         const torch::Tensor& target) {
  torch::Tensor logits = at::linear(hidden, weight);
  if (logits.scalar_type() != torch::kFloat64) logits = logits.to(torch::kFloat32);
  return at::cross_entropy_loss(logits, target, {}, at::Reduction::None);
}

}  // namespace redline::models
