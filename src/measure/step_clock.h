// Divides the main thread's time into phases. Scopes nest: the inner phase's time is taken from the outer one, so a step's phases
// always add up to its wall time. Cost is calibrated at start (calibrate_scope_ns) and reported in the run record.
// Threads: one StepClock belongs to one thread. Fault-injection points (measure/faults.h) sit in the scopes.
#pragma once

#include "core/time.h"
#include "measure/faults.h"
#include "measure/phases.h"

namespace redline::measure {

class StepClock {
 public:
  // Starts a step now; time since the last end_step() that nobody claimed belongs to the new step's Other.
  void begin_step() {
    times_.fill(0);
    begin_ns_ = mark_ns_ = now_ns();
    current_ = Phase::Other;
  }
  // Ends the step: returns its phases; wall_ns() is their sum.
  const PhaseTimes& end_step() {
    switch_to(Phase::Other);
    end_ns_ = mark_ns_;
    return times_;
  }
  int64_t begin_ns() const { return begin_ns_; }
  int64_t wall_ns() const { return end_ns_ - begin_ns_; }
  const PhaseTimes& times() const { return times_; }

  // Charges the time since the last switch to the current phase and makes `phase` current; returns the one that was.
  Phase switch_to(Phase phase) {
    const int64_t now = now_ns();
    times_[static_cast<size_t>(current_)] += now - mark_ns_;
    mark_ns_ = now;
    const Phase before = current_;
    current_ = phase;
    return before;
  }

 private:
  PhaseTimes times_{};
  int64_t begin_ns_ = 0, mark_ns_ = 0, end_ns_ = 0;
  Phase current_ = Phase::Other;
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

// Median cost of one PhaseScope on this machine, in nanoseconds.
double calibrate_scope_ns();

}  // namespace redline::measure
