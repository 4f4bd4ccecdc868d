// What one sample may take while it is read and decoded, and what the samples of all workers may take together: a
// picture of a few kilobytes may ask for gigabytes, and each worker may meet one. Decoders say what they are about to
// take (charge_memory) before they take it. A sample within its worker's free allowance costs two additions; only a
// larger one takes the lock. A sample over the limit of one is refused and counts as bad. A sample that is allowed but
// finds the others' share in use gives everything back, waits with empty hands and is read again: so nobody waits while
// holding, and no order of samples can make the workers wait for each other. Threads: any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

namespace redline::data {

// Shared by the workers of one loader.
class MemoryBudget {
 public:
  MemoryBudget(int64_t max_buffer_bytes, int num_workers);

  uint64_t item_limit() const { return item_limit_; }
  uint64_t free_bytes() const { return free_bytes_; }  // of each worker, beside the shared part
  bool try_take(uint64_t bytes);
  void take(uint64_t bytes);  // waits, first come, first served; the caller holds nothing of the budget
  void give(uint64_t bytes) noexcept;

 private:
  uint64_t total_, item_limit_, free_bytes_;
  std::mutex mutex_;
  std::condition_variable given_;
  uint64_t used_ = 0;
  uint64_t next_ticket_ = 0, now_served_ = 0;
};

// Half of the buffer, and all samples in work together three quarters of it; never below 256 MiB, so that a small
// buffer refuses no photograph.
uint64_t item_limit_bytes(int64_t max_buffer_bytes);

enum class Charge : uint8_t { Granted, TooLarge, Busy };
// After Charge::Busy: ends the work on this sample; SampleChain catches it and begins the sample again.
struct MemoryBusy {
  uint64_t lease = 0;
};
// `times` what it asked for so far: a stream of unknown length would otherwise wait again and again.
[[noreturn]] void throw_memory_busy(int times);

// The sample its thread works on, from its first byte to the finished row; one at a time per thread.
class ItemMemory {
 public:
  // `lease` bytes are taken at once; waits for them. A null budget only limits single samples.
  explicit ItemMemory(MemoryBudget* budget, uint64_t lease = 0);
  ~ItemMemory();
  ItemMemory(const ItemMemory&) = delete;
  ItemMemory& operator=(const ItemMemory&) = delete;

 private:
  friend Charge try_charge_memory(uint64_t bytes) noexcept;
  friend void throw_memory_busy(int times);
  MemoryBudget* budget_;
  uint64_t leased_ = 0, granted_ = 0, used_ = 0, limit_ = 0;
};

// Whether this thread works on a sample; without one, charges are judged one by one and do not add up.
bool has_item_memory();

// For callbacks that must not throw.
Charge try_charge_memory(uint64_t bytes) noexcept;

// True when the bytes may be taken, false when the sample is too large; throws MemoryBusy.
bool charge_memory(uint64_t bytes);
// A clause after "x.png: ": what to do about a sample that is too large.
std::string too_large_text();

}  // namespace redline::data
