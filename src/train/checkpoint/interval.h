// When to save: a pure function of what was asked and what was measured. No clock, no disk.
#pragma once

#include <cstdint>
#include <optional>

namespace redline::train {

struct IntervalPolicy {
  std::optional<int64_t> every_steps = std::nullopt;
  std::optional<double> every_seconds = std::nullopt;
  // When neither is given: save as often as this share of wall time allows (CheckFreq, FAST'21, bounds it by 3.5 %).
  double overhead_limit = 0.03;
  // Young's interval sqrt(2 C M) (Young, CACM 1974) as a lower bound on the automatic interval: more often gains
  // nothing.
  std::optional<double> mean_time_between_failures_seconds = std::nullopt;
  double shortest_seconds = 10.0, longest_seconds = 1800.0;  // of the automatic interval
};

struct IntervalInput {
  int64_t steps_since_save = 0;
  double seconds_since_save = 0;  // since the last save began, or since the run started
  double stall_seconds = 0;       // of the last save; 0 = none yet
  double write_seconds = 0;       // of the last finished write
  double slowdown_seconds = 0;    // what training loses to the writer thread: at most its CPU time
  bool writer_busy = false;
};

// Never true while the writer is busy or before a step was made since the last save.
bool should_save(const IntervalPolicy& policy, const IntervalInput& input);
// The interval in seconds that the automatic policy aims at; used by should_save and printed in the record.
double automatic_interval_seconds(const IntervalPolicy& policy, const IntervalInput& input);

}  // namespace redline::train
