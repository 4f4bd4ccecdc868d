#include "data/array.h"

#include <gtest/gtest.h>

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
  EXPECT_THROW(Array::empty(Dtype::F32, {-1}), InternalError);
}

TEST(Array, MayBeEmpty) { EXPECT_EQ(Array::empty(Dtype::I64, {0, 4}).numel(), 0); }

}  // namespace
}  // namespace redline::data
