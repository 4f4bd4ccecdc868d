#include "task/detail/keyed_dropout.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace redline::task {
namespace {

std::shared_ptr<const DropoutMask> mask_for(const std::vector<int64_t>& shape, double p,
                                            std::vector<int64_t> padded = {}, std::vector<int64_t> ids = {}) {
  if (ids.empty())
    for (int64_t i = 0; i < shape[0]; ++i) ids.push_back(1000 + i * 17);
  return std::make_shared<DropoutMask>(
      DropoutMask{dropout_draw(operation_key(11, 4, "d"), p), ids, KeyLayout(shape, padded)});
}

TEST(KeyedDropout, VectorEqualsPlainForEveryTypeAndLength) {
  for (auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat16, torch::kFloat64}) {
    for (int64_t length : {1, 7, 8, 31, 32, 33, 100, 4096, 9001}) {
      const std::vector<int64_t> shape = {3, length};
      const torch::Tensor x = torch::linspace(-5, 5, 3 * length).view({3, length}).to(dtype);
      const auto mask = mask_for(shape, 0.3);
      const torch::Tensor plain = apply_dropout_mask(x, *mask, RandomPath::kPlain);
      const torch::Tensor vector = apply_dropout_mask(x, *mask, best_random_path());
      EXPECT_TRUE(torch::equal(plain, vector)) << torch::toString(dtype) << " " << length;
    }
  }
}

TEST(KeyedDropout, BFloat16RoundsLikeLibTorchAndKeepsNonFinite) {
  torch::Tensor x = torch::linspace(-3, 3, 4096).view({1, 4096}).to(torch::kBFloat16);
  x[0][5] = std::numeric_limits<float>::infinity();
  x[0][6] = std::numeric_limits<float>::quiet_NaN();
  const auto mask = mask_for({1, 4096}, 0.25);
  const torch::Tensor kept = apply_dropout_mask(torch::ones({1, 4096}), *mask, RandomPath::kPlain);
  const torch::Tensor expected =
      torch::where(kept.gt(0), x.to(torch::kFloat32) * mask->draw.scale, 0.0).to(torch::kBFloat16);
  const torch::Tensor found = apply_dropout_mask(x, *mask, best_random_path());
  EXPECT_TRUE(torch::allclose(found, expected, 0, 0, /*equal_nan=*/true));
}

TEST(KeyedDropout, DropsTheShareItPromises) {
  for (double p : {0.05, 0.1, 0.5, 0.9}) {
    const auto mask = mask_for({16, 65536}, p);
    const torch::Tensor y = apply_dropout_mask(torch::ones({16, 65536}), *mask, best_random_path());
    const double dropped = y.eq(0).to(torch::kFloat64).mean().item<double>();
    EXPECT_NEAR(dropped, p, 5 * std::sqrt(p * (1 - p) / (1 << 20)) + 1.0 / 65536);
    EXPECT_NEAR(y.to(torch::kFloat64).mean().item<double>(), 1.0, 0.02);
    EXPECT_NEAR(y.max().item<double>(), 1 / (1 - p), 2e-4 / (1 - p));
  }
}

TEST(KeyedDropout, AnyThreadCountGivesTheSameBits) {
  const auto mask = mask_for({8, 12345}, 0.2);
  const torch::Tensor x = torch::arange(8 * 12345, torch::kFloat32).view({8, 12345});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const torch::Tensor one = apply_dropout_mask(x, *mask, best_random_path());
  at::set_num_threads(2);
  const torch::Tensor two = apply_dropout_mask(x, *mask, best_random_path());
  at::set_num_threads(threads);
  EXPECT_TRUE(torch::equal(one, two));
}

TEST(KeyedDropout, BackwardUsesTheSameMask) {
  torch::Tensor x = torch::linspace(-1, 1, 5 * 77).view({5, 77}).requires_grad_(true);
  const auto mask = mask_for({5, 77}, 0.4);
  const torch::Tensor y = keyed_dropout(x, mask);
  ASSERT_TRUE(y.requires_grad());
  const torch::Tensor weight = torch::linspace(1, 2, 5 * 77).view({5, 77});
  (y * weight).sum().backward();
  const torch::Tensor pattern = apply_dropout_mask(torch::ones({5, 77}), *mask, RandomPath::kPlain);
  EXPECT_TRUE(torch::equal(x.grad(), apply_dropout_mask(weight, *mask, RandomPath::kPlain)));
  EXPECT_TRUE(torch::allclose(y.detach(), x.detach() * pattern));
}

TEST(KeyedDropout, SecondDerivativeIsThere) {
  torch::Tensor x = torch::linspace(0.1, 1, 40).view({2, 20}).requires_grad_(true);
  const auto mask = mask_for({2, 20}, 0.5);
  const torch::Tensor y = keyed_dropout(x * x, mask).sum();
  const torch::Tensor first = torch::autograd::grad({y}, {x}, {}, true, true)[0];
  const torch::Tensor second = torch::autograd::grad({first.sum()}, {x})[0];
  const torch::Tensor pattern = apply_dropout_mask(torch::ones({2, 20}), *mask, RandomPath::kPlain);
  EXPECT_TRUE(torch::allclose(second, 2 * pattern));
}

TEST(KeyedDropout, MemoryFormatChangesNothing) {
  const torch::Tensor x = torch::linspace(-1, 1, 2 * 3 * 4 * 5).view({2, 3, 4, 5});
  const auto mask = mask_for({2, 3, 4, 5}, 0.5);
  const torch::Tensor plain = apply_dropout_mask(x, *mask, best_random_path());
  const torch::Tensor last =
      apply_dropout_mask(x.contiguous(at::MemoryFormat::ChannelsLast), *mask, best_random_path());
  EXPECT_TRUE(torch::equal(plain, last));
  EXPECT_TRUE(last.is_contiguous(at::MemoryFormat::ChannelsLast));
  const torch::Tensor turned = apply_dropout_mask(x.transpose(1, 2), *mask_for({2, 4, 3, 5}, 0.5), best_random_path());
  EXPECT_EQ(turned.sizes(), x.transpose(1, 2).sizes());
}

TEST(KeyedDropout, ThresholdRoundsPAndRefusesNonsense) {
  EXPECT_EQ(dropout_threshold(0.0), 0u);
  EXPECT_EQ(dropout_threshold(0.5), 32768u);
  EXPECT_EQ(dropout_threshold(0.1), 6554u);
  EXPECT_EQ(dropout_threshold(0.999999999), 65535u);
  EXPECT_THROW(dropout_threshold(1.0), InternalError);
  EXPECT_THROW(dropout_threshold(-0.1), InternalError);
}

}  // namespace
}  // namespace redline::task
