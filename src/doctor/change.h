// What moved between two records of the same job: which phase (or loader stage) grew, by how much, and what removing it
// would gain. The base of the stopwatch's test, of `redline compare` and of the drift watch. Pure: rows in, findings
// out.
//
// Rows are paired by position (same step, same samples in both), so that batches of different length do not count as
// noise. A part has moved when the bootstrap interval of its mean paired difference lies above `least_share` of the
// base step.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "measure/run_record.h"
#include "measure/statistics.h"

namespace redline::doctor {

// A phase of the step or a stage of the loader, as one list: "wait" ... "other", "read", "decode", "transform",
// "collate".
struct Part {
  bool is_stage = false;
  size_t index = 0;
  std::string name() const;
  bool operator==(const Part&) const = default;
};

struct PartChange {
  Part part;
  double seconds_per_step = 0;  // grown (positive) or shrunk, amortised
  measure::Interval interval;   // of seconds_per_step
  double share_of_step = 0;     // of the base step's wall time
};

struct Change {
  double base_step_seconds = 0, step_seconds = 0;
  measure::RatioEstimate speed;   // base seconds / new seconds: < 1 is slower
  std::vector<PartChange> parts;  // all, largest growth first
  std::vector<PartChange> moved;  // those that count as moved, culprit first
  // Grown only because a loader stage did: waiting for it, and sharing cores with it.
  std::vector<PartChange> symptoms;
  // Gain in speed if the culprits were removed, predicted from the moved parts alone.
  double predicted_gain = 0;
};

struct ChangeOptions {
  double least_share = 0.025;
  double confidence = 0.98;
  uint64_t seed = 1;
};

// True when more rows could still change the answer: the interval of a part's growth holds the limit.
bool is_uncertain(const Change& change, const ChangeOptions& options = {});

// Several passes over the same steps as one: of each phase the fastest pass, so that what others did on the machine is
// left out; of the stages, which run ahead of their row in bursts, the mean of the fastest pass. Requires passes of
// equal, non-zero length; compare with as many passes of the other condition.
std::vector<measure::StepRow> best_rows(std::span<const std::vector<measure::StepRow>> passes);

// base[i] and now[i] are the same step of the job in two conditions. Requires equal, non-zero sizes.
Change find_change(std::span<const measure::StepRow> base, std::span<const measure::StepRow> now,
                   const ChangeOptions& options = {});

}  // namespace redline::doctor
