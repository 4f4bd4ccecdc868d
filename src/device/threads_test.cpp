#include "device/threads.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "core/error.h"

namespace redline::device {
namespace {

TEST(Threads, SetsAndRestores) {
  const int before = intra_op_threads();
  {
    const ThreadCountScope scope(1);
    EXPECT_EQ(intra_op_threads(), 1);
    {
      const ThreadCountScope inner(2);
      EXPECT_EQ(intra_op_threads(), 2);
    }
    EXPECT_EQ(intra_op_threads(), 1);
  }
  EXPECT_EQ(intra_op_threads(), before);
  EXPECT_THROW(set_intra_op_threads(0), ConfigError);
  EXPECT_EQ(intra_op_threads(), before);
}

// The header makes it a plain loop when a flag is missing, and nothing else would tell.
TEST(Threads, ParallelForRunsOnAllOfThem) {
  const ThreadCountScope scope(2);
  std::array<std::atomic<int>, 2> entered{};
  at::parallel_for(0, 2, 1, [&](int64_t begin, int64_t end) {
    ASSERT_EQ(end, begin + 1);
    entered[static_cast<size_t>(begin)] = at::get_thread_num() + 1;
  });
  EXPECT_EQ(entered[0], 1);
  EXPECT_EQ(entered[1], 2);
}

TEST(Threads, MklIsFixedWhereLibTorchHasIt) { EXPECT_EQ(fix_mkl_threads(), at::hasMKL()); }

TEST(Threads, DeterministicIsASwitch) {
  set_deterministic(true);
  EXPECT_TRUE(deterministic());
  EXPECT_THAT(numerics_fingerprint(), testing::HasSubstr("deterministic=1"));
  set_deterministic(false);
  EXPECT_FALSE(deterministic());
  EXPECT_THAT(numerics_fingerprint(), testing::HasSubstr("deterministic=0"));
}

TEST(Threads, FingerprintChangesWithTheThreadCount) {
  const ThreadCountScope one(1);
  const std::string with_one = numerics_fingerprint();
  const ThreadCountScope two(2);
  EXPECT_NE(numerics_fingerprint(), with_one);
  EXPECT_THAT(with_one, testing::HasSubstr("instruction_set=" + instruction_set()));
  EXPECT_FALSE(instruction_set().empty());
}

// What the settings are for: the same step twice gives the same bits.
TEST(Threads, SameStepTwiceIsBitEqual) {
  const ThreadCountScope two(2);
  set_deterministic(true);
  const auto step = [] {
    const at::Tensor x = at::arange(256 * 256, at::kFloat).reshape({256, 256}).sin_().set_requires_grad(true);
    at::mm(x, x).tanh().sum().backward();
    return x.grad().clone();
  };
  EXPECT_TRUE(at::equal(step(), step()));
  set_deterministic(false);
}

}  // namespace
}  // namespace redline::device
