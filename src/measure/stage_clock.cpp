// Sums are taken while workers write, so a total may lag by the scopes that are open; it never goes backwards.
#include "measure/stage_clock.h"

#include <algorithm>

namespace redline::measure {

StageClock::StageClock(int num_workers) : slots_(static_cast<size_t>(std::max(num_workers, 1))) {
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].worker = static_cast<int>(i);
}

StageTotals StageClock::totals() const {
  StageTotals totals;
  for (const Slot& slot : slots_) {
    for (size_t i = 0; i < kNumStages; ++i) totals.ns[i] += slot.ns[i].load(std::memory_order_relaxed);
    totals.samples += slot.samples.load(std::memory_order_relaxed);
    totals.bytes_read += slot.bytes_read.load(std::memory_order_relaxed);
  }
  return totals;
}

void StageClock::trace_to(SpanLog* spans) {
  for (Slot& slot : slots_) slot.spans.store(spans, std::memory_order_release);
}

}  // namespace redline::measure
