// An n-dimensional array of plain memory: what samples and batches are made of before LibTorch sees them. Free of
// torch, so that the worker core can be tested under ThreadSanitizer. data/tensor_batch.h hands the memory to LibTorch
// without a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace redline::data {

enum class Dtype : uint8_t { F32, F64, I32, I64, U8, Bool };
constexpr size_t dtype_size(Dtype dtype) {  // asked for every row of a batch
  constexpr size_t kSizes[] = {4, 8, 4, 8, 1, 1};
  return kSizes[static_cast<size_t>(dtype)];
}
const char* dtype_name(Dtype dtype);  // "float32", ...

using Shape = std::vector<int64_t>;

// Memory aligned to 64 bytes, not initialised; large blocks are recycled. Throws std::bad_alloc.
std::shared_ptr<void> allocate_block(size_t bytes);

// Shared ownership of the memory, so that a decoded sample may sit in a cache and in a batch at once. Contiguous,
// row-major (but for channels_last), aligned to 64 bytes. Memory may come from a pinned pool: the deleter knows.
class Array {
 public:
  Array() = default;
  static Array empty(Dtype dtype, Shape shape);  // not initialised
  static Array zeros(Dtype dtype, Shape shape);
  static Array wrap(Dtype dtype, Shape shape, std::shared_ptr<void> memory);

  Dtype dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t numel() const { return numel_; }
  size_t num_bytes() const { return static_cast<size_t>(numel_) * dtype_size(dtype_); }
  bool defined() const { return memory_ != nullptr; }
  void* data() const { return memory_.get(); }
  const std::shared_ptr<void>& memory() const { return memory_; }
  // A picture whose memory is [..., H, W, C] although its shape says [..., C, H, W].
  bool channels_last() const { return channels_last_; }
  void set_channels_last() { channels_last_ = true; }

  template <class T>
  std::span<T> as() const {
    return {static_cast<T*>(memory_.get()), static_cast<size_t>(numel_)};
  }

 private:
  Dtype dtype_ = Dtype::F32;
  Shape shape_;
  int64_t numel_ = 0;
  bool channels_last_ = false;
  std::shared_ptr<void> memory_;
};

}  // namespace redline::data
