// Worker-side counters: seconds per stage, samples, bytes; one slot per worker, padded against false sharing, summed by
// the reader.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "core/time.h"
#include "measure/faults.h"
#include "measure/phases.h"
#include "measure/spans.h"

namespace redline::measure {

struct StageTotals {
  StageTimes ns{};
  int64_t samples = 0, bytes_read = 0;
};

class StageClock {
 public:
  explicit StageClock(int num_workers);
  StageTotals totals() const;  // any thread, while workers run
  int workers() const { return static_cast<int>(slots_.size()); }
  // Also keeps each stage's begin and end, until called with null; any thread, while workers run. `spans` must outlive
  // the workers' scopes that are open at that moment.
  void trace_to(SpanLog* spans);

  struct alignas(64) Slot {
    std::array<std::atomic<int64_t>, kNumStages> ns{};
    std::atomic<int64_t> samples{0}, bytes_read{0};
    std::atomic<SpanLog*> spans{nullptr};
    int worker = 0;
  };
  Slot& slot(int worker) { return slots_[static_cast<size_t>(worker)]; }

 private:
  std::vector<Slot> slots_;
};

// On the worker that owns the slot; a slot has one writer.
class StageScope {
 public:
  StageScope(StageClock::Slot& slot, Stage stage) : slot_(slot), stage_(stage), begin_ns_(now_ns()) {
    faults::at(stage);
  }
  ~StageScope() {
    const int64_t end_ns = now_ns();
    auto& total = slot_.ns[static_cast<size_t>(stage_)];
    total.store(total.load(std::memory_order_relaxed) + end_ns - begin_ns_, std::memory_order_relaxed);
    if (SpanLog* spans = slot_.spans.load(std::memory_order_acquire))
      spans->add(stage_, slot_.worker, begin_ns_, end_ns);
  }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  StageClock::Slot& slot_;
  Stage stage_;
  int64_t begin_ns_;
};

}  // namespace redline::measure
