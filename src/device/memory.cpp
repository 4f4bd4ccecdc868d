// The size of a block is asked from malloc when it is freed (malloc_usable_size), so no table and no header is needed
// and the pointer stays exactly what LibTorch's allocator returned: copy-on-write and raw_allocate keep working.
// Counters are relaxed atomics.
#include "device/memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "core/strings.h"

namespace redline::device::memory {
namespace {

struct alignas(64) Counters {
  std::atomic<int64_t> live{0}, step_peak{0}, earlier_peak{0}, allocations{0};
};
struct alignas(64) Settings {
  std::atomic<bool> on{true};
  std::atomic<int64_t> limit{0}, fail_in{0};
};
Counters counters;
Settings settings;
c10::DeleterFnPtr default_free = nullptr;

void free_counted(void* block) {
  if (block != nullptr) {
    counters.live.fetch_sub(static_cast<int64_t>(malloc_usable_size(block)), std::memory_order_relaxed);
  }
  default_free(block);
}

void count(void* block) {
  const auto bytes = static_cast<int64_t>(malloc_usable_size(block));
  const int64_t live = counters.live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = counters.step_peak.load(std::memory_order_relaxed);
  while (live > peak && !counters.step_peak.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

[[noreturn]] void throw_out_of_memory(size_t bytes, const std::string& why) {
  TORCH_CHECK_WITH(OutOfMemoryError, false, "redline: ", why, ": ", format_bytes(bytes), " asked, ",
                   format_bytes(static_cast<uint64_t>(std::max<int64_t>(0, counters.live.load()))), " live.");
  throw std::bad_alloc();  // not reached: the check above throws
}

void refuse_if_asked(size_t bytes) {
  const int64_t limit_bytes = settings.limit.load(std::memory_order_relaxed);
  if (limit_bytes > 0 && counters.live.load(std::memory_order_relaxed) + static_cast<int64_t>(bytes) > limit_bytes) {
    throw_out_of_memory(
        bytes, "the limit of " + format_bytes(static_cast<uint64_t>(limit_bytes)) + " for tensor memory is reached");
  }
  if (settings.fail_in.load(std::memory_order_relaxed) > 0 &&
      settings.fail_in.fetch_sub(1, std::memory_order_relaxed) == 1) {
    throw_out_of_memory(bytes, "this allocation was asked to fail");
  }
}

class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (!settings.on.load(std::memory_order_relaxed) || bytes == 0) return inner_->allocate(bytes);
    counters.allocations.fetch_add(1, std::memory_order_relaxed);
    refuse_if_asked(bytes);
    c10::DataPtr block = allocate_or_explain(bytes);
    // An allocator with another deleter is not the one we know how to measure; hand its block on uncounted.
    if (block.get() == block.get_context() && block.compare_exchange_deleter(default_free, &free_counted))
      count(block.get());
    return block;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  // The default allocator reports a failed malloc as a plain c10::Error; guards look for OutOfMemoryError.
  c10::DataPtr allocate_or_explain(size_t bytes) {
    try {
      return inner_->allocate(bytes);
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error& error) {
      if (std::strstr(error.what(), "allocate memory") == nullptr &&
          std::strstr(error.what(), "enough memory") == nullptr)
        throw;
      throw_out_of_memory(bytes, "the system has no more memory to give");
    }
  }
  c10::Allocator* inner_;
};

}  // namespace

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::Allocator* inner = c10::GetDefaultCPUAllocator();
    default_free = inner->raw_deleter();
    static CountingAllocator allocator(inner);
    c10::SetCPUAllocator(&allocator, 1);
  });
}

void set_enabled(bool on) { settings.on.store(on, std::memory_order_relaxed); }
bool enabled() { return default_free != nullptr && settings.on.load(std::memory_order_relaxed); }

Stats stats() {
  Stats now;
  now.live_bytes = counters.live.load(std::memory_order_relaxed);
  now.step_peak_bytes = std::max(counters.step_peak.load(std::memory_order_relaxed), now.live_bytes);
  now.peak_bytes = std::max(counters.earlier_peak.load(std::memory_order_relaxed), now.step_peak_bytes);
  now.allocations = counters.allocations.load(std::memory_order_relaxed);
  return now;
}

void begin_step() {
  const int64_t live = counters.live.load(std::memory_order_relaxed);
  const int64_t peak = counters.step_peak.exchange(live, std::memory_order_relaxed);
  if (peak > counters.earlier_peak.load(std::memory_order_relaxed))
    counters.earlier_peak.store(peak, std::memory_order_relaxed);
  counters.allocations.store(0, std::memory_order_relaxed);
}

void set_limit(int64_t bytes) { settings.limit.store(std::max<int64_t>(bytes, 0), std::memory_order_relaxed); }
int64_t limit() { return settings.limit.load(std::memory_order_relaxed); }
void fail_allocation(int64_t n) { settings.fail_in.store(std::max<int64_t>(n, 0), std::memory_order_relaxed); }

int64_t default_limit(uint64_t available_bytes, int64_t live_bytes, uint64_t loader_bytes) {
  constexpr int64_t kLeastReserve = int64_t{256} << 20, kLeastLimit = int64_t{64} << 20;
  const int64_t available = static_cast<int64_t>(available_bytes) + std::max<int64_t>(live_bytes, 0);
  const int64_t reserve = std::max(available / 10, kLeastReserve) + static_cast<int64_t>(loader_bytes);
  return std::max(available - reserve, kLeastLimit);
}

}  // namespace redline::device::memory
