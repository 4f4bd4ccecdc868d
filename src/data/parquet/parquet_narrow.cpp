#include "data/parquet/parquet_narrow.h"

#include <algorithm>
#include <cstring>

namespace redline::data {

namespace {

template <class To, class From>
void convert_values(const void* from, size_t count, void* out) {
  const auto* in = static_cast<const From*>(from);
  auto* to = static_cast<To*>(out);
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<To>(in[i]);
}

template <class T>
void narrow_as(ParquetColumnData& column) {
  const auto values = column.values.as<T>();
  if (values.empty()) return;
  // Written out as a loop that the compiler turns into vector instructions; std::minmax_element is not.
  T lowest = values[0], highest = values[0];
  for (const T value : values) {
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  if (lowest >= 0 && highest <= UINT8_MAX) {
    Array narrow = Array::empty(Dtype::U8, {static_cast<int64_t>(values.size())});
    convert_values<uint8_t, T>(values.data(), values.size(), narrow.data());
    column.values = std::move(narrow);
    column.stored = StoredAs::U8;
  } else if (lowest >= INT16_MIN && highest <= INT16_MAX) {
    Array narrow = Array::empty(Dtype::U8, {static_cast<int64_t>(values.size() * sizeof(int16_t))});
    convert_values<int16_t, T>(values.data(), values.size(), narrow.data());
    column.values = std::move(narrow);
    column.stored = StoredAs::I16;
  }
}

template <class To>
void copy_as(const ParquetColumnData& column, const std::byte* from, size_t count, void* out) {
  if (column.stored == StoredAs::U8)
    convert_values<To, uint8_t>(from, count, out);
  else
    convert_values<To, int16_t>(from, count, out);
}

}  // namespace

void narrow_integers(ParquetColumnData& column) {
  if (!column.is_list || column.stored != StoredAs::AsIs) return;
  if (column.dtype == Dtype::I32) narrow_as<int32_t>(column);
  if (column.dtype == Dtype::I64) narrow_as<int64_t>(column);
}

size_t stored_size(const ParquetColumnData& column) {
  if (column.stored == StoredAs::U8) return sizeof(uint8_t);
  return column.stored == StoredAs::I16 ? sizeof(int16_t) : dtype_size(column.dtype);
}

void copy_values(const ParquetColumnData& column, size_t first, size_t count, void* out) {
  if (count == 0) return;
  const auto* from = static_cast<const std::byte*>(column.values.data()) + first * stored_size(column);
  if (column.stored == StoredAs::AsIs)
    std::memcpy(out, from, count * stored_size(column));
  else if (column.dtype == Dtype::I32)
    copy_as<int32_t>(column, from, count, out);
  else
    copy_as<int64_t>(column, from, count, out);
}

}  // namespace redline::data
