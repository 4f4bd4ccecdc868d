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

// On the worker that owns the slot; a slot has one writer. What an InnerStage took is not counted here again.
class StageScope {
 public:
  StageScope(StageClock::Slot& slot, Stage stage) : slot_(slot), stage_(stage), outer_(open()), begin_ns_(now_ns()) {
    open() = this;
    faults::at(stage);
  }
  ~StageScope() {
    const int64_t end_ns = now_ns();
    open() = outer_;
    add(stage_, end_ns - begin_ns_ - inner_ns_);
    if (SpanLog* spans = slot_.spans.load(std::memory_order_acquire))
      spans->add(stage_, slot_.worker, begin_ns_, end_ns);
  }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  friend class InnerStage;
  static StageScope*& open() {  // the thread's innermost
    thread_local StageScope* scope = nullptr;
    return scope;
  }
  void add(Stage stage, int64_t ns) {
    auto& total = slot_.ns[static_cast<size_t>(stage)];
    total.store(total.load(std::memory_order_relaxed) + ns, std::memory_order_relaxed);
  }

  StageClock::Slot& slot_;
  Stage stage_;
  StageScope* outer_;
  int64_t begin_ns_, inner_ns_ = 0;
};

// A part of the open scope's work that belongs to another stage, for code that knows no slot: a picture is decoded in
// the middle of its transform, because the crop says what must be decoded. Nothing where no scope is open, or one of
// the same stage.
class InnerStage {
 public:
  explicit InnerStage(Stage stage) : stage_(stage), scope_(StageScope::open()) {
    if (scope_ != nullptr && scope_->stage_ == stage) scope_ = nullptr;
    if (scope_ == nullptr) return;
    begin_ns_ = now_ns();
    faults::at(stage);
  }
  ~InnerStage() {
    if (scope_ == nullptr) return;
    const int64_t end_ns = now_ns();
    scope_->inner_ns_ += end_ns - begin_ns_;
    scope_->add(stage_, end_ns - begin_ns_);
    if (SpanLog* spans = scope_->slot_.spans.load(std::memory_order_acquire))
      spans->add(stage_, scope_->slot_.worker, begin_ns_, end_ns);
  }
  InnerStage(const InnerStage&) = delete;
  InnerStage& operator=(const InnerStage&) = delete;

 private:
  Stage stage_;
  StageScope* scope_;
  int64_t begin_ns_ = 0;
};

}  // namespace redline::measure
