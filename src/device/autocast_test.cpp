#include "device/autocast.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

namespace redline::device {
namespace {

at::ScalarType product_type() {
  const at::Tensor a = at::ones({4, 4});
  return at::mm(a, a).scalar_type();
}

TEST(Autocast, ChoosesTheTypeOfMatrixProducts) {
  EXPECT_EQ(product_type(), at::kFloat);
  {
    const AutocastScope scope(DeviceKind::Cpu, Precision::Bf16Mixed);
    EXPECT_TRUE(autocast_enabled(DeviceKind::Cpu));
    EXPECT_EQ(product_type(), at::kBFloat16);
  }
  {
    const AutocastScope scope(DeviceKind::Cpu, Precision::Fp16Mixed);
    EXPECT_EQ(product_type(), at::kHalf);
  }
  {
    const AutocastScope scope(DeviceKind::Cpu, Precision::Fp32);
    EXPECT_FALSE(autocast_enabled(DeviceKind::Cpu));
    EXPECT_EQ(product_type(), at::kFloat);
  }
  EXPECT_FALSE(autocast_enabled(DeviceKind::Cpu));
  EXPECT_EQ(product_type(), at::kFloat);
}

TEST(Autocast, NestsAndRestoresTheOuterType) {
  const AutocastScope outer(DeviceKind::Cpu, Precision::Bf16Mixed);
  {
    const AutocastScope loss(DeviceKind::Cpu, Precision::Fp32);
    EXPECT_EQ(product_type(), at::kFloat);
    const AutocastScope inner(DeviceKind::Cpu, Precision::Fp16Mixed);
    EXPECT_EQ(product_type(), at::kHalf);
  }
  EXPECT_EQ(product_type(), at::kBFloat16);
}

// Cast weights are cached while a scope lives; a later scope must see the weights as they are then.
TEST(Autocast, DropsCastWeightsAtTheEnd) {
  at::Tensor weight = at::full({2, 2}, 1.0F).set_requires_grad(true);
  const at::Tensor x = at::ones({2, 2});
  const auto forward = [&] {
    const AutocastScope scope(DeviceKind::Cpu, Precision::Bf16Mixed);
    return at::mm(x, weight).to(at::kFloat).sum().item<float>();
  };
  EXPECT_FLOAT_EQ(forward(), 8.0F);
  {
    const at::NoGradGuard no_grad;
    weight.fill_(2.0F);
  }
  EXPECT_FLOAT_EQ(forward(), 16.0F);
}

TEST(Autocast, BelongsToItsThread) {
  const AutocastScope scope(DeviceKind::Cpu, Precision::Bf16Mixed);
  bool elsewhere = true;
  std::thread([&] { elsewhere = autocast_enabled(DeviceKind::Cpu); }).join();
  EXPECT_FALSE(elsewhere);
}

}  // namespace
}  // namespace redline::device
