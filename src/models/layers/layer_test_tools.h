// For the tests of fused layers: packed batches of ragged lengths, and "same value and same gradients as the plain
// twin".
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

#include "models/layers/packed_rows.h"
#include "models/layers/row_dropout.h"
#include "task/context.h"

namespace redline::models::testing {

inline Rows ragged_rows(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> ids;
  for (size_t b = 0; b < lengths.size(); ++b) ids.push_back(1000 + 7 * static_cast<int64_t>(b));
  return pack_rows(lengths, ids);
}

inline DropoutDraw some_dropout(double p) {
  static const std::vector<int64_t> none;
  const task::Context ctx(42, 3, true, none);
  return ctx.dropout_draw(p, "test");
}

inline torch::Tensor wave(std::vector<int64_t> shape, double phase, torch::ScalarType type) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return (torch::arange(count, torch::kFloat64) * 1.3 + phase)
      .sin()
      .add_((torch::arange(count, torch::kFloat64) * 0.37).cos())
      .view(shape)
      .to(type);
}

inline double largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.numel() == 0 && b.numel() == 0) return 0.0;
  const torch::Tensor x = a.detach().to(torch::kFloat64), y = b.detach().to(torch::kFloat64);
  const double scale = std::max(1e-6, y.abs().max().item<double>());
  return (x - y).abs().max().item<double>() / scale;
}

using Layer = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;

// Both layers on the same inputs; outputs and the gradients of a fixed weighted sum of them must agree.
inline void expect_same_layer(const Layer& fused, const Layer& plain, const std::vector<torch::Tensor>& inputs,
                              double tolerance) {
  const auto run = [&](const Layer& layer) {
    std::vector<torch::Tensor> leaves;
    for (const torch::Tensor& x : inputs)
      leaves.push_back(x.is_floating_point() ? x.detach().clone().requires_grad_(true) : x);
    std::vector<torch::Tensor> out = layer(leaves);
    torch::Tensor total = torch::zeros({}, torch::kFloat64);
    for (size_t i = 0; i < out.size(); ++i)
      total = total +
              (out[i].to(torch::kFloat64) * wave(out[i].sizes().vec(), static_cast<double>(i), torch::kFloat64)).sum();
    total.backward();
    for (torch::Tensor& leaf : leaves)
      if (leaf.is_floating_point()) out.push_back(leaf.grad());
    return out;
  };
  const auto a = run(fused), b = run(plain);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << "result " << i;
    if (!a[i].defined()) continue;
    ASSERT_EQ(a[i].sizes(), b[i].sizes()) << "result " << i;
    EXPECT_LE(largest_difference(a[i], b[i]), tolerance) << "result " << i;
  }
}

}  // namespace redline::models::testing
