#include "device/memory.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace redline::device {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;

class TensorMemory : public testing::Test {
 protected:
  void SetUp() override {
    memory::install();
    memory::set_enabled(true);
    memory::begin_step();
    before_ = memory::stats().live_bytes;
  }
  void TearDown() override {
    memory::set_limit(0);
    memory::fail_allocation(0);
    memory::set_enabled(true);
  }
  int64_t live() const { return memory::stats().live_bytes - before_; }
  int64_t before_ = 0;
};

at::Tensor mebibytes(int64_t count) { return at::empty({count * kMebi}, at::kByte); }

TEST_F(TensorMemory, CountsLiveAndPeak) {
  {
    const at::Tensor a = mebibytes(4);
    EXPECT_NEAR(static_cast<double>(live()), 4.0 * kMebi, 8192);
    const at::Tensor b = mebibytes(8);
    EXPECT_NEAR(static_cast<double>(live()), 12.0 * kMebi, 16384);
  }
  EXPECT_EQ(live(), 0);
  EXPECT_GE(memory::stats().step_peak_bytes - before_, 12 * kMebi);
  EXPECT_EQ(memory::stats().allocations, 2);
  memory::begin_step();
  EXPECT_EQ(memory::stats().step_peak_bytes, memory::stats().live_bytes) << "a step's peak starts from what is live";
  EXPECT_GE(memory::stats().peak_bytes - before_, 12 * kMebi) << "the run's peak stays";
  EXPECT_EQ(memory::stats().allocations, 0);
}

TEST_F(TensorMemory, SurvivesResizeCopyOnWriteAndRawBlocks) {
  {
    at::Tensor a = at::ones({1000});
    a.resize_({100000});
    const at::Tensor lazy = at::_lazy_clone(a);
    a.fill_(3.0F);
    EXPECT_NE(a.const_data_ptr(), lazy.const_data_ptr());
    void* raw = c10::GetCPUAllocator()->raw_allocate(4096);
    EXPECT_GT(live(), 800000);
    c10::GetCPUAllocator()->raw_deallocate(raw);
    const at::Tensor empty = at::empty({0});
  }
  EXPECT_EQ(live(), 0);
}

TEST_F(TensorMemory, RefusesAboveTheLimitAndChangesNothing) {
  const at::Tensor kept = mebibytes(4);
  memory::set_limit(memory::stats().live_bytes + 2 * kMebi);
  const at::Tensor fits = mebibytes(1);
  const int64_t live_before = memory::stats().live_bytes;
  try {
    mebibytes(2);
    FAIL() << "2 MiB fitted into 1";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("limit of"));
  }
  EXPECT_EQ(memory::stats().live_bytes, live_before);
  memory::set_limit(0);
  EXPECT_NO_THROW(mebibytes(2));
}

TEST_F(TensorMemory, ExhaustedSystemIsOutOfMemoryToo) {
  EXPECT_THROW(at::empty({int64_t{1} << 55}, at::kByte), c10::OutOfMemoryError);
  EXPECT_EQ(live(), 0);
}

// The guard's test loop: let the n-th allocation of a step fail, for every n, until none fires.
TEST_F(TensorMemory, FailsEveryNthAllocationInTurn) {
  const auto step = [] {
    const at::Tensor x = at::ones({64, 64}).set_requires_grad(true);
    at::mm(x, x).relu().sum().backward();
    return x.grad().sum().item<float>();
  };
  const float expected = step();
  memory::begin_step();
  step();
  const int64_t allocations = memory::stats().allocations;
  ASSERT_GT(allocations, 5);
  int64_t failures = 0;
  for (int64_t n = 1; n <= allocations + 1; ++n) {
    memory::fail_allocation(n);
    try {
      step();
    } catch (const c10::OutOfMemoryError&) {
      ++failures;
    }
    memory::fail_allocation(0);
    EXPECT_EQ(live(), 0) << "leak after failing allocation " << n;
  }
  EXPECT_EQ(failures, allocations) << "each fails once; the one past the end does not exist";
  EXPECT_EQ(step(), expected);
}

TEST_F(TensorMemory, OffCountsNothingNewButFreesWhatWasCounted) {
  at::Tensor counted = mebibytes(2);
  memory::set_enabled(false);
  EXPECT_FALSE(memory::enabled());
  const int64_t with_one = live();
  const at::Tensor uncounted = mebibytes(4);
  EXPECT_EQ(live(), with_one);
  counted.reset();
  EXPECT_EQ(live(), 0);
}

TEST_F(TensorMemory, ThreadsAddUp) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 1; i < 2000; ++i) at::empty({i % 97 + 1});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(live(), 0);
  EXPECT_EQ(memory::stats().allocations, 4 * 1999);
}

TEST(MemoryLimit, Default) {
  constexpr uint64_t kGibi = uint64_t{1} << 30;
  const struct {
    uint64_t available;
    int64_t live;
    uint64_t loader;
    int64_t limit;
  } cases[] = {
      {10 * kGibi, 0, 0, static_cast<int64_t>(9 * kGibi)},
      {10 * kGibi, 0, kGibi, static_cast<int64_t>(8 * kGibi)},
      {9 * kGibi, static_cast<int64_t>(kGibi), 0,
       static_cast<int64_t>(9 * kGibi)},                         // live tensors are part of the budget
      {kGibi, 0, 0, static_cast<int64_t>(kGibi) - 256 * kMebi},  // at least 256 MiB stay free
      {100 * static_cast<uint64_t>(kMebi), 0, 0, 64 * kMebi},
      {0, 0, 5 * kGibi, 64 * kMebi},
  };
  for (const auto& c : cases) EXPECT_EQ(memory::default_limit(c.available, c.live, c.loader), c.limit) << c.available;
}

}  // namespace
}  // namespace redline::device
