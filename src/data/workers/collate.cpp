#include "data/workers/collate.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "data/files/stream_copy.h"

namespace redline::data {

namespace {

constexpr size_t kStreamedRowBytes = size_t{64} << 10;  // a batch of such rows does not stay in a cache anyway

class HeapArrays : public ArrayAllocator {
 public:
  Array allocate(Dtype dtype, Shape shape) override { return Array::empty(dtype, std::move(shape)); }
};

std::string shape_text(const Array& array) {
  std::string text = std::string(dtype_name(array.dtype())) + " [";
  for (size_t i = 0; i < array.shape().size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(array.shape()[i]);
  return text + "]";
}

template <class T>
void fill_value(void* begin, size_t count, double value) {
  std::fill_n(static_cast<T*>(begin), count, static_cast<T>(value));
}

// The field's array in every row, or empty when the field is optional and no row has it.
std::vector<const Array*> gather(std::span<const Sample* const> rows, const CollateField& field) {
  std::vector<const Array*> arrays;
  arrays.reserve(rows.size());
  for (const Sample* row : rows) {
    const Array* array = row->find(field.source());
    if (array == nullptr) {
      if (field.optional && arrays.empty()) continue;
      std::string names;
      for (const auto& entry : row->fields) names += (names.empty() ? "" : ", ") + entry.first;
      throw DataError("Sample " + std::to_string(row->id) + " has no field '" + field.source() + "' (it has: " + names +
                      "); the task needs it in every sample.");
    }
    if (!arrays.empty() || row == rows.front()) {
      arrays.push_back(array);
    } else {
      throw DataError("Sample " + std::to_string(row->id) + " has the optional field '" + field.source() +
                      "' but sample " + std::to_string(rows.front()->id) + " of the same batch does not.");
    }
  }
  for (size_t i = 1; i < arrays.size(); ++i) {
    const Array &first = *arrays[0], &other = *arrays[i];
    const bool fits = first.dtype() == other.dtype() && first.shape().size() == other.shape().size() &&
                      (first.shape().size() < 2 ||
                       std::equal(first.shape().begin() + 1, first.shape().end(), other.shape().begin() + 1));
    if (!fits) {
      throw DataError("Field '" + field.name + "' cannot be batched: sample " + std::to_string(rows[0]->id) + " is " +
                      shape_text(first) + ", sample " + std::to_string(rows[i]->id) + " is " + shape_text(other) +
                      "; only the first dimension may differ.");
    }
  }
  return arrays;
}

// [C, H, W] pictures one after another, each to [H, W, C].
template <class T>
void write_channels_last(const Array& row, std::byte* to) {
  const size_t rank = row.shape().size(), channels = static_cast<size_t>(row.shape()[rank - 3]),
               plane = static_cast<size_t>(row.shape()[rank - 2] * row.shape()[rank - 1]);
  const T* from = static_cast<const T*>(row.data());
  T* out = reinterpret_cast<T*>(to);
  for (const T* end = from + row.numel(); from != end; from += channels * plane) {
    for (size_t pixel = 0; pixel < plane; ++pixel) {
      for (size_t c = 0; c < channels; ++c) *out++ = from[c * plane + pixel];
    }
  }
}

void write_channels_last(const Array& row, std::byte* to) {
  switch (dtype_size(row.dtype())) {
    case 1:
      return write_channels_last<uint8_t>(row, to);
    case 4:
      return write_channels_last<uint32_t>(row, to);
    default:
      return write_channels_last<uint64_t>(row, to);
  }
}

struct Extent {
  int64_t longest = 0, sum = 0;
};

// Copies the rows into one array; scalars become [B], others [B, longest, ...]. Pictures are laid out on the way when
// asked: here a worker writes every byte anyway.
Array stack(const std::vector<const Array*>& arrays, const CollateField& field, bool channels_last,
            ArrayAllocator& allocator, Extent& extent) {
  const Array& first = *arrays[0];
  const int64_t count = static_cast<int64_t>(arrays.size());
  const size_t size = dtype_size(first.dtype());
  if (first.shape().empty()) {
    Array result = allocator.allocate(first.dtype(), {count});
    auto* out = static_cast<std::byte*>(result.data());
    for (const Array* array : arrays) out = std::copy_n(static_cast<const std::byte*>(array->data()), size, out);
    extent = {1, count};
    return result;
  }
  for (const Array* array : arrays) {
    extent.longest = std::max(extent.longest, array->shape()[0]);
    extent.sum += array->shape()[0];
  }
  const int64_t multiple = std::max<int64_t>(1, field.pad_to_multiple);
  extent.longest = (extent.longest + multiple - 1) / multiple * multiple;
  Shape shape{count, extent.longest};
  shape.insert(shape.end(), first.shape().begin() + 1, first.shape().end());
  Array result = allocator.allocate(first.dtype(), shape);
  const size_t row_bytes = result.num_bytes() / arrays.size();
  auto* out = static_cast<std::byte*>(result.data());
  if (field.picture && channels_last && first.shape().size() >= 3 && first.numel() > 0 &&
      extent.sum == extent.longest * count) {
    for (const Array* array : arrays) {
      write_channels_last(*array, out);
      out += row_bytes;
    }
    result.set_channels_last();
    return result;
  }
  for (const Array* array : arrays) {
    const size_t bytes = array->num_bytes();
    if (field.pad_value == 0.0 && row_bytes >= kStreamedRowBytes) {
      stream_padded_row(out, static_cast<const std::byte*>(array->data()), bytes, row_bytes);
      out += row_bytes;
      continue;
    }
    if (bytes > 0) std::memcpy(out, array->data(), bytes);
    if (bytes < row_bytes) fill_padding(out + bytes, (row_bytes - bytes) / size, first.dtype(), field.pad_value);
    out += row_bytes;
  }
  return result;
}

Array lengths_of(const std::vector<const Array*>& arrays, ArrayAllocator& allocator) {
  Array lengths = allocator.allocate(Dtype::I64, {static_cast<int64_t>(arrays.size())});
  auto out = lengths.as<int64_t>();
  for (size_t i = 0; i < arrays.size(); ++i) out[i] = arrays[i]->shape().empty() ? 1 : arrays[i]->shape()[0];
  return lengths;
}

}  // namespace

void fill_padding(void* begin, size_t count, Dtype dtype, double value) {
  if (value == 0.0) {
    std::memset(begin, 0, count * dtype_size(dtype));
    return;
  }
  switch (dtype) {
    case Dtype::F32:
      return fill_value<float>(begin, count, value);
    case Dtype::F64:
      return fill_value<double>(begin, count, value);
    case Dtype::I32:
      return fill_value<int32_t>(begin, count, value);
    case Dtype::I64:
      return fill_value<int64_t>(begin, count, value);
    case Dtype::U8:
      return fill_value<uint8_t>(begin, count, value);
    case Dtype::Bool:
      return fill_value<bool>(begin, count, value);
  }
}

ArrayAllocator& heap_arrays() {
  static HeapArrays heap;
  return heap;
}

void collate(std::span<const Sample* const> rows, const CollateSpec& spec, ArrayAllocator& allocator, Batch& batch) {
  batch.fields.clear();
  batch.items = batch.padded_items = static_cast<int64_t>(rows.size());
  if (rows.empty()) return;
  batch.fields.reserve(spec.fields.size() * 2);
  for (const CollateField& field : spec.fields) {
    const std::vector<const Array*> arrays = gather(rows, field);
    if (arrays.empty()) continue;
    Extent extent;
    batch.fields.emplace_back(field.name, stack(arrays, field, spec.channels_last, allocator, extent));
    if (!field.length_name.empty()) batch.fields.emplace_back(field.length_name, lengths_of(arrays, allocator));
    if (field.name == spec.counted_field) {
      batch.items = extent.sum;
      batch.padded_items = extent.longest * static_cast<int64_t>(rows.size());
    }
  }
}

int64_t num_bytes(const Batch& batch) {
  size_t bytes = 0;
  for (const auto& field : batch.fields) bytes += field.second.num_bytes();
  return static_cast<int64_t>(bytes);
}

int64_t num_bytes(const Sample& sample) {
  size_t bytes = 0;
  for (const auto& field : sample.fields) bytes += field.second.num_bytes();
  return static_cast<int64_t>(bytes);
}

}  // namespace redline::data
