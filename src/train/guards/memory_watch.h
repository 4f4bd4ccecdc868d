// The process's real memory against what it may hold. Tensors are accounted and limited; library scratch, loader
// buffers and other heaps are not: when they outgrow the reserve left for them, the tensors' limit gives way, so that
// the guard acts before the kernel does. A state machine over numbers; no clock, no process.
#pragma once

#include <cstdint>
#include <optional>

namespace redline::train {

class MemoryWatch {
 public:
  // What tensors may hold, and what the whole process may (0: unknown, never acts).
  MemoryWatch(int64_t tensor_limit, int64_t process_bytes)
      : first_limit_(tensor_limit), limit_(tensor_limit), process_bytes_(process_bytes) {}

  // After a step: resident memory and the step's peak of tensors. The tensors' new limit when it has to move; it never
  // rises above the first one. Freed tensors may stay resident, so only what exceeds the peak counts as something else.
  std::optional<int64_t> update(int64_t rss_bytes, int64_t peak_bytes);
  int64_t limit() const { return limit_; }

 private:
  int64_t first_limit_, limit_, process_bytes_;
};

}  // namespace redline::train
