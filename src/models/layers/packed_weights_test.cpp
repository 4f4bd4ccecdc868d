#include "models/layers/packed_weights.h"

#include "models/layers/gemm_bf16.h"
#include "models/layers/layer_test_tools.h"

namespace redline::models::packed_weights_test {
namespace {

using testing::wave;

bool same(const torch::Tensor& a, const torch::Tensor& b) {
  return torch::equal(a.view(torch::kInt16), b.view(torch::kInt16));
}

class PackedWeights : public ::testing::Test {
 protected:
  void SetUp() override { forget_packed_weights(); }
  int64_t made() const { return packed_weight_stats().made - before_; }
  int64_t before_ = packed_weight_stats().made;
};

void change(torch::Tensor& weight) {
  const torch::NoGradGuard no_grad;
  weight.add_(1.0);
}

TEST_F(PackedWeights, AValueAskedForAgainIsKept) {
  torch::Tensor weight = wave({40, 24}, 0.2, torch::kFloat32).requires_grad_(true);
  EXPECT_TRUE(same(packed_weight(weight, true), bf16_right_operand(weight, true)));
  EXPECT_EQ(packed_weight_stats().bytes, 0);  // it may be the only time
  const torch::Tensor kept = packed_weight(weight, true);
  EXPECT_TRUE(same(kept, bf16_right_operand(weight, true)));
  EXPECT_EQ(made(), 2);
  EXPECT_EQ(packed_weight(weight, true).const_data_ptr(), kept.const_data_ptr());
  EXPECT_EQ(made(), 2);
  packed_weight(weight, false);  // the other order is its own
  EXPECT_EQ(made(), 3);
  EXPECT_EQ(packed_weight_stats().entries, 2);
  EXPECT_EQ(packed_weight_stats().bytes, static_cast<int64_t>(kept.nbytes()));
}

// Steps of two micro-batches make each value once; when they become steps of one, nothing is kept any more.
TEST_F(PackedWeights, WhatIsKeptFollowsTheValueBefore) {
  torch::Tensor weight = wave({40, 24}, 0.2, torch::kFloat32).requires_grad_(true);
  const auto step = [&](int pieces) {
    change(weight);
    const int64_t so_far = made();
    for (int i = 0; i < pieces; ++i) EXPECT_TRUE(same(packed_weight(weight, true), bf16_right_operand(weight, true)));
    return made() - so_far;
  };
  EXPECT_EQ(step(2), 2);  // the first time it is not known that they come again
  EXPECT_EQ(step(2), 1);
  EXPECT_EQ(step(3), 1);
  EXPECT_GT(packed_weight_stats().bytes, 0);
  EXPECT_EQ(step(1), 1);
  EXPECT_EQ(step(1), 1);
  EXPECT_EQ(packed_weight_stats().bytes, 0);
  EXPECT_EQ(packed_weight_stats().entries, 1);
}

TEST_F(PackedWeights, ANewValueIsSeen) {
  torch::Tensor weight = wave({40, 24}, 0.2, torch::kFloat32).requires_grad_(true);
  packed_weight(weight, true);
  const torch::Tensor first = packed_weight(weight, true);
  change(weight);
  const torch::Tensor second = packed_weight(weight, true);
  EXPECT_FALSE(same(second, first));
  EXPECT_TRUE(same(second, bf16_right_operand(weight, true)));
  weight.mutable_data_ptr<float>()[0] = 7.0f;  // behind LibTorch's back: nobody can see it,
  EXPECT_TRUE(same(packed_weight(weight, true), second));
  weight.unsafeGetTensorImpl()->bump_version();  // unless the writer says so
  EXPECT_FALSE(same(packed_weight(weight, true), second));
  EXPECT_EQ(packed_weight_stats().entries, 1);
}

TEST_F(PackedWeights, PartsOfAParameterAreEntriesOfTheirOwn) {
  torch::Tensor weight = wave({48, 24}, 0.2, torch::kFloat32).requires_grad_(true);
  const torch::NoGradGuard no_grad;
  const torch::Tensor low = weight.narrow(0, 0, 16), high = weight.narrow(0, 16, 32);
  EXPECT_TRUE(same(packed_weight(low, true), bf16_right_operand(low, true)));
  EXPECT_TRUE(same(packed_weight(high, true), bf16_right_operand(high, true)));
  const torch::Tensor kept = packed_weight(weight.narrow(0, 16, 32), true);
  EXPECT_EQ(packed_weight(weight.narrow(0, 16, 32), true).const_data_ptr(), kept.const_data_ptr());
  EXPECT_EQ(made(), 3);
  weight.mul_(2.0);
  EXPECT_TRUE(same(packed_weight(weight.narrow(0, 16, 32), true), bf16_right_operand(weight.narrow(0, 16, 32), true)));
}

TEST_F(PackedWeights, WhatIsNoParameterIsNotKept) {
  const torch::Tensor made_of_weights = wave({40, 24}, 0.2, torch::kFloat32);
  packed_weight(made_of_weights, true);
  EXPECT_EQ(packed_weight_stats().entries, 0);
}

TEST_F(PackedWeights, GoWithTheirModel) {
  {
    torch::Tensor gone = wave({40, 24}, 0.2, torch::kFloat32).requires_grad_(true);
    packed_weight(gone, true);
  }
  torch::Tensor next = wave({8, 24}, 0.3, torch::kFloat32).requires_grad_(true);
  EXPECT_TRUE(same(packed_weight(next, true), bf16_right_operand(next, true)));
  EXPECT_EQ(packed_weight_stats().entries, 1);
}

}  // namespace
}  // namespace redline::models::packed_weights_test
