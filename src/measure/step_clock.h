// Divides the main thread's time into phases. Scopes nest: the inner phase's time is taken from the outer one, so a
// step's phases always add up to its wall time. Cost is calibrated at start (calibrate_scope_ns) and reported in the
// run record. Threads: one StepClock belongs to one thread. Fault-injection points (measure/faults.h) sit in the
// scopes.
#pragma once

#include <atomic>
#include <utility>

#include "core/time.h"
#include "measure/faults.h"
#include "measure/phases.h"
#include "measure/spans.h"

namespace redline::measure {

class StepClock {
 public:
  // Steps follow each other without a gap: time since the last end_step() belongs to the new step, to the scopes it was
  // spent in or to Other. The first step, and one after forget_idle(), starts now.
  void begin_step() {
    if (idle_forgotten_) {
      times_.fill(0);
      mark_ns_ = now_ns();
      current_.store(Phase::Other, std::memory_order_relaxed);
      idle_forgotten_ = false;
      begin_ns_ = mark_ns_;
    } else {
      begin_ns_ = end_ns_;
    }
    timed_ = every_ <= 1 || ++untimed_ >= every_;
    if (timed_) untimed_ = 0;
    switches_ = 0;
    begin_cpu();
  }
  // Ends the step: returns its phases; wall_ns() is their sum. The reference holds until the next end_step().
  const PhaseTimes& end_step() {
    const bool was_timed = std::exchange(timed_, true);
    switch_to(Phase::Other);
    timed_ = was_timed;
    end_ns_ = mark_ns_;
    finished_ = times_;
    finished_timed_ = timed_;
    if (cpu_timed_) finished_cpu_ = cpu_times_;
    times_.fill(0);
    return finished_;
  }
  // From the next step on only each n-th step is divided into phases; the others' time is all Other, but for what comes
  // now and then (log, monitor, validation, checkpoint). For steps so short that reading the clock would show in them.
  void sample_every(int64_t n) { every_ = n; }
  // Of each n-th of the steps that are divided, and the one after that, also the thread's processor time by phase; 0:
  // never. Asking the kernel for it costs several times what the clock does.
  void sample_cpu_every(int64_t n) { cpu_every_ = n; }
  // Of the step that ended last, where it was taken; else null. What was spent between two steps is not in it.
  const PhaseTimes* cpu() const { return cpu_timed_ ? &finished_cpu_ : nullptr; }
  bool timed() const { return timed_; }             // this step, or the one that ended last
  int64_t scopes() const { return switches_ / 2; }  // of this step so far

  // The time until the next begin_step() is nobody's (e.g. between two trials of the tuner).
  void forget_idle() { idle_forgotten_ = true; }

  int64_t begin_ns() const { return begin_ns_; }
  int64_t wall_ns() const { return end_ns_ - begin_ns_; }  // of the step that ended last
  const PhaseTimes& times() const { return times_; }       // of the step that is running, up to the last switch
  // Of the step that ended last, where it was divided; else null.
  const PhaseTimes* finished() const { return finished_timed_ ? &finished_ : nullptr; }

  // Charges the time since the last switch to the current phase and makes `phase` current; returns the one that was.
  Phase switch_to(Phase phase) {
    ++switches_;
    const Phase was = current();
    current_.store(phase, std::memory_order_relaxed);
    if (!timed_ && !comes_now_and_then(phase) && !comes_now_and_then(was)) return was;
    const int64_t now = now_ns();
    const Phase spent = timed_ || comes_now_and_then(was) ? was : Phase::Other;
    times_[static_cast<size_t>(spent)] += now - mark_ns_;
    if (cpu_timed_) charge_cpu(spent);
    if (spans_ != nullptr) spans_->add(spent, mark_ns_, now);
    mark_ns_ = now;
    return was;
  }
  Phase current() const { return current_.load(std::memory_order_relaxed); }  // any thread may ask

  // Also keeps each phase's begin and end, until called with null. `spans` must outlive that.
  void trace_to(SpanLog* spans) { spans_ = spans; }

 private:
  static bool comes_now_and_then(Phase phase) {
    return phase == Phase::Log || phase == Phase::Monitor || phase == Phase::Validate || phase == Phase::Checkpoint;
  }

  void begin_cpu() {
    // Not every n-th, which might meet a cadence always or never.
    cpu_timed_ = timed_ && cpu_every_ > 0 && ++cpu_untimed_ >= cpu_every_ + (cpu_odd_ ? 1 : 0);
    if (cpu_timed_) start_cpu();
  }
  void start_cpu();
  void charge_cpu(Phase spent);

  PhaseTimes times_{}, finished_{}, cpu_times_{}, finished_cpu_{};
  int64_t cpu_every_ = 0, cpu_untimed_ = 0, cpu_mark_ns_ = 0;
  bool cpu_timed_ = false, cpu_odd_ = false;
  int64_t begin_ns_ = 0, mark_ns_ = 0, end_ns_ = 0;
  SpanLog* spans_ = nullptr;
  std::atomic<Phase> current_{Phase::Other};
  bool idle_forgotten_ = true, timed_ = true, finished_timed_ = false;
  int64_t every_ = 1, untimed_ = 0, switches_ = 0;
};

class PhaseScope {
 public:
  PhaseScope(StepClock& clock, Phase phase) : clock_(clock), before_(clock.switch_to(phase)) { faults::at(phase); }
  ~PhaseScope() { clock_.switch_to(before_); }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  StepClock& clock_;
  Phase before_;
};

// Median cost of one PhaseScope on this machine, in nanoseconds. Takes about a millisecond; measured once per process.
double calibrate_scope_ns();

// Median cost of reading the thread's processor time, in nanoseconds; measured once per process.
double calibrate_cpu_ns();

// Every how many steps to divide one into phases, so that this costs at most that share of the steps' time.
int64_t sampling_interval(int64_t scopes, double scope_ns, double step_ns, double most_share = 0.01);

}  // namespace redline::measure
