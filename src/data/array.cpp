// Arrays of 64 KiB and more are recycled through a small process-wide pool: a decoded clip or a batch of several MiB
// otherwise costs a page fault and a zeroed page per 4 KiB each time, which showed as a tenth of the time of a FLAC
// epoch.
#include "data/array.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "core/check.h"

namespace redline::data {

const char* dtype_name(Dtype dtype) {
  constexpr const char* kNames[] = {"float32", "float64", "int32", "int64", "uint8", "bool"};
  return kNames[static_cast<size_t>(dtype)];
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

void* aligned_block(size_t bytes) {
  void* memory = std::aligned_alloc(64, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// Straight from the kernel: malloc keeps tens of MiB of freed blocks of such sizes for itself.
void* map_pages(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

// Blocks in quarter-octave size classes. A block of a few classes above serves too: clips and batches differ in size,
// and if every size kept blocks of its own, an epoch of speech would hold twice as much. Threads: any.
class BlockPool {
 public:
  static constexpr size_t kSmallest = size_t{64} << 10, kKeptBytes = size_t{96} << 20;
  static constexpr int kClassesAbove = 5;  // at most 2.5 times what was asked for

  struct Block {
    void* memory;
    size_t bytes;
  };

  static size_t block_bytes(size_t bytes) {
    const size_t step = std::bit_floor(bytes) / 4;
    return (bytes + step - 1) / step * step;
  }

  Block take(size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      size_t block = bytes;
      for (int above = 0; above <= kClassesAbove; ++above, block = block_bytes(block + 1)) {
        auto& blocks = free_[slot(block)];
        if (blocks.empty()) continue;
        void* memory = blocks.back();
        blocks.pop_back();
        kept_bytes_ -= block;
        return {memory, block};
      }
    }
    return {map_pages(bytes), bytes};
  }

  void give(void* memory, size_t block) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (kept_bytes_ + block <= kKeptBytes) {
        auto& blocks = free_[slot(block)];
        if (blocks.size() < blocks.capacity()) {
          blocks.push_back(memory);
          kept_bytes_ += block;
          return;
        }
      }
    }
    ::munmap(memory, block);
  }

  BlockPool() {
    for (auto& blocks : free_) blocks.reserve(64);  // give() runs in destructors and must not allocate
  }

 private:
  static size_t slot(size_t block) {
    const size_t octave = static_cast<size_t>(std::bit_width(block)) - 1;
    const size_t quarter = (block >> (octave - 2)) & 3;
    return octave * 4 + quarter;
  }
  static constexpr size_t kSlots = 30 * 4;  // beyond what the classes above the largest kept block reach

  std::mutex mutex_;
  std::vector<void*> free_[kSlots];
  size_t kept_bytes_ = 0;
};

// Never destroyed: arrays in static storage may outlive any order of destruction.
BlockPool& block_pool() {
  static BlockPool* pool = new BlockPool;
  return *pool;
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

std::shared_ptr<void> allocate_block(size_t bytes) {
  if (bytes >= BlockPool::kSmallest && bytes <= BlockPool::kKeptBytes) {
    const BlockPool::Block block = block_pool().take(BlockPool::block_bytes(bytes));
    return {block.memory, [size = block.bytes](void* memory) { block_pool().give(memory, size); }};
  }
  return {aligned_block((bytes + 63) / 64 * 64 + (bytes == 0 ? 64 : 0)), std::free};
}

Array Array::empty(Dtype dtype, Shape shape) {
  const size_t count = static_cast<size_t>(product(shape));
  size_t bytes = 0;
  REDLINE_CHECK(!__builtin_mul_overflow(count, dtype_size(dtype), &bytes) && bytes < SIZE_MAX / 4,
                "an array's bytes fit the address space");
  return wrap(dtype, std::move(shape), allocate_block(bytes));
}

Array Array::zeros(Dtype dtype, Shape shape) {
  Array array = empty(dtype, std::move(shape));
  std::memset(array.data(), 0, array.num_bytes());
  return array;
}

}  // namespace redline::data
