// A test of the stopwatch: which delays to inject into the timed scopes, and how to score which scopes were named. It
// shows that a part that grew is found, against a twin without the delay; whether a diagnosis of one run is right is
// another question (bench/doctor_outside.py). Someone who can train runs the plan; nothing here knows a clock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "doctor/change.h"
#include "measure/faults.h"

namespace redline::doctor {

struct Injection {
  std::vector<Part> parts;  // none: a control; two: a double fault
  double share = 0;         // of the step, amortised, per part
  measure::faults::DelayKind kind = measure::faults::DelayKind::Sleep;
  std::string text() const;  // "forward 10 % sleep", "control", "decode + log 20 % spin"
};

// Every phase and stage that can be slowed x {5, 10, 20, 50 %} x {sleep, spin}, at least 15 controls and 10 double
// faults, in an order drawn from `seed`. Parts that never occur in this job (e.g. no monitor) are left out by
// `available`.
std::vector<Injection> selftest_plan(const std::vector<Part>& available, uint64_t seed, int repeats = 1);

struct Answer {
  Injection injection;
  std::vector<Part> named;         // by the doctor, culprit first
  double predicted_gain = 0;       // of removing what it named
  double measured_gain = 0;        // of the run without the fault against the run with it
  std::string named_text() const;  // "nothing", "decode", "forward, log"
  bool right() const;  // control: nothing named; one: the culprit; two: both among those named, culprit one of them
};

struct SelftestResult {
  int injections = 0, right = 0;  // faults only
  int controls = 0, false_alarms = 0;
  double accuracy = 0, false_alarm_rate = 0, median_gain_error = 0;  // gain error in percentage points / 100
  std::map<std::string, std::map<std::string, int>> matrix;          // injected -> named ("nothing" included)
};
// What someone who ran the plan found.
struct SelftestRun {
  std::vector<Answer> answers;
  double step_seconds = 0;  // of the job without a fault
  double seconds = 0;       // the whole test took
};
SelftestResult score_selftest(const std::vector<Answer>& answers);

}  // namespace redline::doctor
