#include "train/step/noise_watch.h"

#include <gtest/gtest.h>

#include "core/philox.h"
#include "train/testing/harness.h"

namespace redline::train {
namespace {

// Gradients over b samples around a true one of length 2, whose samples vary by 3 in each of 1000 dimensions: the noise
// scale is 9000 / 4.
torch::Tensor draw_gradient(KeyedStream& draw, int64_t samples) {
  constexpr int64_t kSize = 1000;
  torch::Tensor gradient = torch::empty({kSize});
  auto* values = gradient.mutable_data_ptr<float>();
  for (int64_t i = 0; i < kSize; ++i)
    values[i] = static_cast<float>(2 / std::sqrt(1000.0) + 3 / std::sqrt(static_cast<double>(samples)) * draw.normal());
  return gradient;
}

double noise_of(const std::vector<NoiseWatch::Step>& steps) {
  double gradient = 0, variance = 0;
  for (const NoiseWatch::Step& step : steps) {
    gradient += step.gradient_squared;
    variance += step.variance;
  }
  return variance / gradient;
}

TEST(NoiseWatch, TheFirstPieceAgainstTheStep) {
  KeyedStream draw(1, 0, 0, 0);
  NoiseWatch watch;
  for (int i = 0; i < 400; ++i) {
    watch.begin();
    EXPECT_TRUE(watch.wants_part());
    const torch::Tensor first = draw_gradient(draw, 64), rest = draw_gradient(draw, 192);
    watch.part(std::vector{first * 5}, 5, 64);  // as the engine has it: not yet divided
    EXPECT_FALSE(watch.wants_part());
    const torch::Tensor whole = (first * 64 + rest * 192) / 256;
    watch.whole(std::vector{whole * 7}, 7, whole.norm().item<double>(), 256);
  }
  const auto steps = watch.take();
  ASSERT_EQ(steps.size(), 400u);
  EXPECT_EQ(steps[0].samples, 256);
  EXPECT_NEAR(noise_of(steps) / 2250, 1, 0.1);
  EXPECT_TRUE(watch.take().empty());
}

TEST(NoiseWatch, StepsOfOnePieceInTwos) {
  KeyedStream draw(2, 0, 0, 0);
  NoiseWatch watch;
  for (int i = 0; i < 800; ++i) {
    watch.begin();
    const torch::Tensor whole = draw_gradient(draw, 128);
    watch.whole(std::vector{whole * 3}, 3, whole.norm().item<double>(), 128);
  }
  const auto steps = watch.take();
  ASSERT_EQ(steps.size(), 400u);
  EXPECT_EQ(steps[0].samples, 256);
  EXPECT_NEAR(noise_of(steps) / 2250, 1, 0.1);
}

}  // namespace
}  // namespace redline::train
