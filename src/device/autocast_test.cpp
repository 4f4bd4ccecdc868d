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
    const AutocastScope scope(DeviceKind::Cpu, FloatType::Bf16);
    EXPECT_TRUE(autocast_enabled(DeviceKind::Cpu));
    EXPECT_EQ(product_type(), at::kBFloat16);
  }
  {
    const AutocastScope scope(DeviceKind::Cpu, FloatType::Fp16);
    EXPECT_EQ(product_type(), at::kHalf);
  }
  {
    const AutocastScope scope(DeviceKind::Cpu, FloatType::Fp32);
    EXPECT_FALSE(autocast_enabled(DeviceKind::Cpu));
    EXPECT_EQ(product_type(), at::kFloat);
  }
  EXPECT_FALSE(autocast_enabled(DeviceKind::Cpu));
  EXPECT_EQ(product_type(), at::kFloat);
}

TEST(Autocast, NestsAndRestoresTheOuterType) {
  const AutocastScope outer(DeviceKind::Cpu, FloatType::Bf16);
  {
    const AutocastScope loss(DeviceKind::Cpu, FloatType::Fp32);
    EXPECT_EQ(product_type(), at::kFloat);
    const AutocastScope inner(DeviceKind::Cpu, FloatType::Fp16);
    EXPECT_EQ(product_type(), at::kHalf);
  }
  EXPECT_EQ(product_type(), at::kBFloat16);
}

// Cast weights are cached while a scope lives; a later scope must see the weights as they are then.
TEST(Autocast, DropsCastWeightsAtTheEnd) {
  at::Tensor weight = at::full({2, 2}, 1.0F).set_requires_grad(true);
  const at::Tensor x = at::ones({2, 2});
  const auto forward = [&] {
    const AutocastScope scope(DeviceKind::Cpu, FloatType::Bf16);
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
  const AutocastScope scope(DeviceKind::Cpu, FloatType::Bf16);
  bool elsewhere = true;
  std::thread([&] { elsewhere = autocast_enabled(DeviceKind::Cpu); }).join();
  EXPECT_FALSE(elsewhere);
}

TEST(Autocast, Names) {
  EXPECT_EQ(float_type_name(FloatType::Fp32), "fp32");
  EXPECT_EQ(float_type_name(FloatType::Bf16), "bf16");
  EXPECT_EQ(float_type_name(FloatType::Fp16), "fp16");
}

}  // namespace
}  // namespace redline::device
