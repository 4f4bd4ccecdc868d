// Cross entropy of logits = hidden weight^T, row by row, without keeping logits and probabilities: the logits' buffer
// is turned in place into softmax - onehot, which is all that backward needs. Above kLogitsBudgetBytes the rows are
// done in blocks whose logits are computed again in backward.
#pragma once

#include <torch/torch.h>

namespace redline::models {

inline constexpr int64_t kLogitsBudgetBytes = int64_t{256} << 20;

// hidden [N, C], weight [V, C], target int64 [N] with 0 <= target < V (checked) -> nll [N]. Under autocast the products
// run in the lower precision, the softmax in float32.
torch::Tensor linear_cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                                   const torch::Tensor& target, int64_t budget_bytes = kLogitsBudgetBytes);
torch::Tensor linear_cross_entropy_plain(const torch::Tensor& hidden, const torch::Tensor& weight,
                                         const torch::Tensor& target);

}  // namespace redline::models
