#include "data/parquet/parquet_narrow.h"

#include <gtest/gtest.h>

namespace redline::data {
namespace {

template <class T>
ParquetColumnData list_column(const std::vector<T>& values, Dtype dtype) {
  ParquetColumnData column;
  column.dtype = dtype;
  column.is_list = true;
  column.offsets = {0, static_cast<uint32_t>(values.size())};
  column.values = Array::empty(dtype, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), column.values.as<T>().begin());
  return column;
}

template <class T>
void expect_kept(const std::vector<T>& values, Dtype dtype, StoredAs stored, size_t size) {
  ParquetColumnData column = list_column(values, dtype);
  narrow_integers(column);
  EXPECT_EQ(column.stored, stored);
  EXPECT_EQ(stored_size(column), size);
  EXPECT_EQ(column.values.num_bytes(), values.size() * size);
  std::vector<T> back(values.size());
  copy_values(column, 0, values.size(), back.data());
  EXPECT_EQ(back, values);
  std::vector<T> middle(1);
  copy_values(column, 1, 1, middle.data());
  EXPECT_EQ(middle[0], values[1]) << "from the middle";
}

TEST(ParquetNarrow, TakesTheFewestBytesThatHoldEveryValue) {
  expect_kept<int32_t>({0, 7, 255}, Dtype::I32, StoredAs::U8, 1);
  expect_kept<int64_t>({0, 7, 255}, Dtype::I64, StoredAs::U8, 1);
  expect_kept<int32_t>({0, 7, 256}, Dtype::I32, StoredAs::I16, 2);
  expect_kept<int64_t>({-1, 0, 9}, Dtype::I64, StoredAs::I16, 2);
  expect_kept<int32_t>({-32768, 5, 32767}, Dtype::I32, StoredAs::I16, 2);
  expect_kept<int32_t>({0, 7, 32768}, Dtype::I32, StoredAs::AsIs, 4);
  expect_kept<int64_t>({0, -32769, 7}, Dtype::I64, StoredAs::AsIs, 8);
  expect_kept<int64_t>({INT64_MIN, 0, INT64_MAX}, Dtype::I64, StoredAs::AsIs, 8);
}

TEST(ParquetNarrow, LeavesTheRestAlone) {
  expect_kept<float>({1.0f, 2.0f}, Dtype::F32, StoredAs::AsIs, 4);
  ParquetColumnData scalar = list_column<int32_t>({1, 2}, Dtype::I32);
  scalar.is_list = false;
  narrow_integers(scalar);
  EXPECT_EQ(scalar.stored, StoredAs::AsIs);
  ParquetColumnData empty = list_column<int32_t>({}, Dtype::I32);
  narrow_integers(empty);
  EXPECT_EQ(empty.stored, StoredAs::AsIs);
}

}  // namespace
}  // namespace redline::data
