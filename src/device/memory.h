// Tensor memory on the CPU as a budget that can be read, limited and tested. Without it, running out of memory on a CPU
// is a kill by the kernel, not an error. Library scratch (oneDNN, MKL) and loader buffers are not tensors: leave
// headroom (default_memory_limit).
//
// Threads: all functions may be called from any thread. One limit per process.
#pragma once

#include <cstdint>

namespace redline::device::memory {

struct Stats {
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;       // since install()
  int64_t step_peak_bytes = 0;  // since begin_step()
  int64_t allocations = 0;      // since begin_step()
};

// Wraps LibTorch's CPU allocator, once per process (later calls do nothing). Tensors made before are not counted.
void install();
// Off: new tensors go straight to LibTorch's allocator; those already counted are still subtracted when they are freed.
void set_enabled(bool on);
bool enabled();

Stats stats();
// Peak starts again from what is live now, the count of allocations from 0.
void begin_step();

// An allocation that would bring live_bytes above the limit throws c10::OutOfMemoryError and changes nothing. 0 = no
// limit. Several threads that allocate at the same moment may together pass it by less than their requests.
void set_limit(int64_t bytes);
int64_t limit();

// For tests: the n-th counted allocation from now throws c10::OutOfMemoryError, once. 0 takes it back.
void fail_allocation(int64_t n);

// The default of trainer.memory_limit: what is available now (cgroup included) plus what tensors hold already, less a
// reserve of a tenth (at least 256 MiB) for library scratch and less `loader_bytes`. At least 64 MiB, so that a crowded
// machine fails with a sentence about memory instead of on its first tensor.
int64_t default_limit(uint64_t available_bytes, int64_t live_bytes, uint64_t loader_bytes);

}  // namespace redline::device::memory
