// Begin and end of each phase and stage, kept only while a trace is being taken; the totals in the clocks are always
// on, this is not. Threads: any thread may add. Bounded: past the capacity spans are counted, not kept.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "measure/phases.h"

namespace redline::measure {

struct Span {
  int64_t begin_ns = 0, end_ns = 0;
  int64_t step = 0;  // 0 for stages: workers run ahead of the step that will use their batch
  int lane = 0;      // 0 = the main thread, n = worker n - 1
  bool is_stage = false;
  uint8_t id = 0;  // Phase or Stage
};

class SpanLog {
 public:
  explicit SpanLog(size_t capacity = size_t{1} << 20) : capacity_(capacity) {}

  void begin_step(int64_t step);
  void add(Phase phase, int64_t begin_ns, int64_t end_ns);
  void add(Stage stage, int worker, int64_t begin_ns, int64_t end_ns);
  std::vector<Span> take();  // and forgets them
  int64_t dropped() const;

 private:
  void push(const Span& span);
  mutable std::mutex mutex_;
  size_t capacity_;
  std::vector<Span> spans_;
  int64_t step_ = 0, dropped_ = 0;
};

}  // namespace redline::measure
