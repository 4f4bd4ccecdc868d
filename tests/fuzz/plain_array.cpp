// Arrays of exactly the size asked for, never recycled: so that AddressSanitizer sees every byte too far. Stands in for
// data/array.cpp.
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/check.h"
#include "data/array.h"

namespace redline::data {

const char* dtype_name(Dtype) { return "number"; }

std::shared_ptr<void> allocate_block(size_t bytes) {
  void* memory = nullptr;
  if (::posix_memalign(&memory, 64, bytes) != 0) throw std::bad_alloc();
  return {memory, std::free};
}

Array Array::wrap(Dtype dtype, Shape shape, std::shared_ptr<void> memory) {
  Array array;
  array.dtype_ = dtype;
  array.numel_ = 1;
  for (const int64_t extent : shape) {
    REDLINE_CHECK(extent >= 0 && !__builtin_mul_overflow(array.numel_, extent, &array.numel_),
                  "an array's size fits 63 bits");
  }
  array.shape_ = std::move(shape);
  array.memory_ = std::move(memory);
  return array;
}

Array Array::empty(Dtype dtype, Shape shape) {
  Array array = wrap(dtype, std::move(shape), nullptr);
  array.memory_ = allocate_block(array.num_bytes());
  return array;
}

Array Array::zeros(Dtype dtype, Shape shape) {
  Array array = empty(dtype, std::move(shape));
  if (array.num_bytes() > 0) std::memset(array.data(), 0, array.num_bytes());
  return array;
}

}  // namespace redline::data
