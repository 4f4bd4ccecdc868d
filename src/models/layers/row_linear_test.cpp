#include "models/layers/row_linear.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <set>

#include "device/autocast.h"
#include "models/layers/gemm_bf16.h"
#include "models/layers/layer_test_tools.h"
#include "models/layers/linear_cross_entropy.h"

namespace redline::models {
namespace {

using testing::wave;

TEST(FilledRows, FewCountsAndFewMoreRows) {
  EXPECT_EQ(filled_row_count(0), 0);
  EXPECT_EQ(filled_row_count(1), 16);
  EXPECT_EQ(filled_row_count(16), 16);
  EXPECT_EQ(filled_row_count(257), 272);
  EXPECT_EQ(filled_row_count(4097), 4352);
  std::set<int64_t> counts;
  for (int64_t rows = 1; rows <= 8192; ++rows) {
    const int64_t filled = filled_row_count(rows);
    counts.insert(filled);
    ASSERT_GE(filled, rows);
    ASSERT_LE(filled, std::max<int64_t>(rows + 15, rows + rows / 16)) << rows;
  }
  EXPECT_LE(counts.size(), 100u);
}

TEST(FilledRows, OnlyALowerPrecisionIsFilled) {
  const torch::Tensor x = wave({19, 8}, 0.1, torch::kFloat32);
  EXPECT_EQ(filled_rows(x, torch::kFloat32).size(0), 19);
  const torch::Tensor filled = filled_rows(x, torch::kBFloat16);
  ASSERT_EQ(filled.size(0), 32);
  EXPECT_TRUE(torch::equal(filled.narrow(0, 0, 19), x.to(torch::kBFloat16)));
  EXPECT_EQ(filled.narrow(0, 19, 13).abs().sum().item<float>(), 0.0f);
}

// Same values and gradients as at::linear: to the bit in float32, within the order of bfloat16's sums otherwise. Where
// the products are our own, their sums are float: then of the rounded operands, because LibTorch's bias gradient is a
// sum of bfloat16 and off by percents itself.
TEST(RowLinear, ZerosAtTheEndChangeNothing) {
  const testing::Layer in_floats = [](const auto& in) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto rounded = [](const torch::Tensor& x) { return x.to(torch::kBFloat16).to(torch::kFloat32); };
    return std::vector{at::linear(rounded(in[0]), rounded(in[1]), in[2])};
  };
  const testing::Layer plain = [](const auto& in) { return std::vector{at::linear(in[0], in[1], in[2])}; };
  const testing::Layer filled = [](const auto& in) { return std::vector{row_linear(in[0], in[1], in[2])}; };
  for (const int64_t rows : {1, 19, 32, 333}) {
    const std::vector<torch::Tensor> inputs = {wave({rows, 24}, 0.2, torch::kFloat32),
                                               wave({40, 24}, 0.5, torch::kFloat32), wave({40}, 0.7, torch::kFloat32)};
    testing::expect_same_layer(filled, plain, inputs, 0);
    const device::AutocastScope low(device::DeviceKind::Cpu, Precision::Bf16Mixed);
    testing::expect_same_layer(filled, bf16_products(torch::kBFloat16) ? in_floats : plain, inputs, 1e-2);
    const torch::Tensor low_rows = inputs[0].to(torch::kBFloat16);
    EXPECT_LE(testing::largest_difference(row_linear(low_rows, inputs[1], inputs[2]).to(torch::kFloat32),
                                          in_floats(inputs)[0]),
              1e-2);
  }
}

// 48 rows are not filled; with no gradient for the last eleven they must give what 37 give.
TEST(RowLinear, TheCrossEntropyOfFilledRowsIsThatOfTheRealOnes) {
  const torch::Tensor target = torch::arange(48, torch::kInt64) % 40;
  const testing::Layer whole = [&](const auto& in) {
    const torch::Tensor x = at::cat({in[0], torch::zeros({11, 24})});
    return std::vector{linear_cross_entropy(x, in[1], target).narrow(0, 0, 37)};
  };
  const device::AutocastScope low(device::DeviceKind::Cpu, Precision::Bf16Mixed);
  for (const int64_t budget_bytes : {kLogitsBudgetBytes, int64_t{10 * 40 * 4}}) {  // at once, and in blocks of ten rows
    const testing::Layer filled = [&](const auto& in) {
      return std::vector{linear_cross_entropy(in[0], in[1], target.narrow(0, 0, 37), budget_bytes)};
    };
    testing::expect_same_layer(filled, whole,
                               {wave({37, 24}, 0.2, torch::kFloat32), wave({40, 24}, 0.5, torch::kFloat32)}, 1e-2);
  }
}

}  // namespace
}  // namespace redline::models
