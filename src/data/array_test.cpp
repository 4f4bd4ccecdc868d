#include "data/array.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"

namespace redline::data {
namespace {

TEST(Array, KnowsItsSizeAndIsAligned) {
  const Array array = Array::zeros(Dtype::F32, {3, 5});
  EXPECT_EQ(array.numel(), 15);
  EXPECT_EQ(array.num_bytes(), 60u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(array.data()) % 64, 0u);
  for (float value : array.as<float>()) EXPECT_EQ(value, 0.0f);
}

TEST(Array, RefusesSizesThatWrap) {
  EXPECT_THROW(Array::empty(Dtype::F32, {int64_t{1} << 40, int64_t{1} << 40}), InternalError);
  EXPECT_THROW(Array::empty(Dtype::F64, {int64_t{1} << 61}), InternalError);
  EXPECT_THROW(Array::empty(Dtype::F32, {-1}), InternalError);
}

TEST(Array, MayBeEmpty) { EXPECT_EQ(Array::empty(Dtype::I64, {0, 4}).numel(), 0); }

TEST(Array, LargeBlocksAreRecycledAndZerosStayZero) {
  void* first = nullptr;
  {
    const Array array = Array::empty(Dtype::F32, {1 << 20});
    first = array.data();
    for (float& value : array.as<float>()) value = 1.0f;
  }
  const Array again = Array::zeros(Dtype::F32, {(1 << 20) - 7});
  EXPECT_EQ(again.data(), first) << "the same size class comes back";
  for (float value : again.as<float>()) ASSERT_EQ(value, 0.0f);
}

TEST(Array, BlocksNeverOverlapAcrossThreads) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong, t] {
      for (int round = 0; round < 50; ++round) {
        std::vector<Array> held;
        for (int64_t i = 1; i <= 8; ++i) {
          held.push_back(Array::empty(Dtype::I32, {20'000 * i}));
          for (int32_t& value : held.back().as<int32_t>())
            value = static_cast<int32_t>(t * 100 + static_cast<size_t>(i));
        }
        for (int64_t i = 1; i <= 8; ++i) {
          for (int32_t value : held[static_cast<size_t>(i - 1)].as<int32_t>()) {
            if (value != static_cast<int32_t>(t * 100 + static_cast<size_t>(i))) ++wrong[t];
          }
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace redline::data
