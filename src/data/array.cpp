#include "data/array.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "core/check.h"

namespace redline::data {

size_t dtype_size(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
    case Dtype::I32:
      return 4;
    case Dtype::F64:
    case Dtype::I64:
      return 8;
    case Dtype::U8:
    case Dtype::Bool:
      return 1;
  }
  return 0;
}

namespace {
int64_t product(const Shape& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) {
    REDLINE_CHECK(extent >= 0, "an array has no negative extent");
    REDLINE_CHECK(!__builtin_mul_overflow(count, extent, &count), "an array's size fits 63 bits");
  }
  return count;
}
}  // namespace

Array Array::wrap(Dtype dtype, Shape shape, std::shared_ptr<void> memory) {
  Array array;
  array.dtype_ = dtype;
  array.numel_ = product(shape);
  array.shape_ = std::move(shape);
  array.memory_ = std::move(memory);
  return array;
}

Array Array::empty(Dtype dtype, Shape shape) {
  const size_t bytes = static_cast<size_t>(product(shape)) * dtype_size(dtype);
  void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64 + (bytes == 0 ? 64 : 0));
  if (memory == nullptr) throw std::bad_alloc();
  return wrap(dtype, std::move(shape), std::shared_ptr<void>(memory, std::free));
}

Array Array::zeros(Dtype dtype, Shape shape) {
  Array array = empty(dtype, std::move(shape));
  std::memset(array.data(), 0, array.num_bytes());
  return array;
}

}  // namespace redline::data
