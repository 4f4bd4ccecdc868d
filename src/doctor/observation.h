// What a stretch of a job looked like, boiled down from its step rows, with its cadences priced for the whole run: the
// only thing the rules of doctor and tuner see of it, besides the job's values (job_view.h) and machine facts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "doctor/rules/cost_fit.h"
#include "doctor/rules/piece_costs.h"
#include "doctor/rules/read_fit.h"
#include "doctor/rules/shared_memory.h"
#include "doctor/setting.h"
#include "doctor/surroundings.h"
#include "measure/cadences.h"
#include "measure/phases.h"
#include "measure/run_record.h"

namespace redline::doctor {

struct PhaseSummary {
  double seconds_per_step = 0;        // amortised over all steps
  double share = 0;                   // of the wall time
  double seconds_per_occurrence = 0;  // median over the steps in which it took time
  int64_t occurrences = 0;
  double share_error = 0;  // standard error of the share, as another such stretch of the run would show it
};

// The job raced against itself in other pieces, which steps of one size cannot tell. The tuner makes these races;
// without them the fits above and a usual share must do.
struct Calibration {
  struct Race {
    Setting setting;
    double ratio = 1;
    double deviation = 0;  // of its logarithm
  };
  std::optional<Race> larger;    // in larger pieces, against the job as it is
  std::optional<Race> bucketed;  // these in length buckets, against these: what the padding that goes had cost
  // In another precision, against the job as it is, and its larger pieces in it, against these: together what it does
  // to an item and to a piece (weights that are rounded for each, products too small to gain).
  std::optional<Race> precise, larger_precise;
  double parallel_share = 0.8;       // of a step that more threads speed up; what is left is bound by memory or serial
  double parallel_deviation = 0.15;  // of that: a prior until threads were raced
};

// What saving took, in the mean over the checkpoints of a run.
struct CheckpointWrites {
  double bytes = 0, write_seconds = 0, sync_seconds = 0, syncs = 0;
};
// None where no checkpoint was saved, or by a version that did not time the disk.
std::optional<CheckpointWrites> checkpoint_writes(const measure::RunRecord& record);

struct Observation {
  int64_t steps = 0;
  double step_seconds = 0;  // amortised: wall time over steps
  double samples_per_step = 0, micro_batches_per_step = 0;
  double samples_per_second = 0, iterations_per_second = 0;  // an iteration is a micro-batch, as the guides count
  double steps_per_second() const { return step_seconds > 0 ? 1 / step_seconds : 0; }  // optimiser steps
  std::array<PhaseSummary, measure::kNumPhases> phases{};
  std::array<double, measure::kNumStages> stage_seconds_per_step{};  // worker-seconds
  double padding_share = 0;                                          // of the padded items
  int64_t peak_bytes = 0, rss_bytes = 0;
  double step_spread = 0;                                  // (q90 - q10) / median of the step times
  CostFit costs;                                           // of items and padding, as shares
  PieceCosts pieces;                                       // the same in seconds
  measure::PerCadence cadence_seconds, cadences_per_step;  // of one occurrence; occurrences, over the whole run
  Calibration calibration;
  // Known only when the run was watched from outside the record; negative = unknown.
  double cores_used = -1, gpu_utilisation = -1;
  double measuring_seconds = 0;  // of a step, spent on measuring it
  std::optional<Surroundings> surroundings;
  ReadFit reads;
  SharedMemory shared_memory;
  std::optional<CheckpointWrites> checkpoint_writes;

  const PhaseSummary& phase(measure::Phase p) const { return phases[static_cast<size_t>(p)]; }
  double stage(measure::Stage s) const { return stage_seconds_per_step[static_cast<size_t>(s)]; }
  double loader_worker_seconds() const;  // all stages, per step
  double bare_step_seconds() const;      // without log, monitor, validation and checkpoints
};

// Steps before `warmup_steps` are left out (first touches, allocator growth). Requires at least one step after them;
// with fewer rows than that, all rows are used.
Observation observe(std::span<const measure::StepRow> rows, int64_t warmup_steps = 3, bool computes_padding = true);

// The cadences of the whole run in place of what the observed steps happened to hold.
void price_cadences(Observation& seen, const measure::PerCadence& seconds, const measure::PerCadence& per_step);
// The cost of our own timers, from what one scope costs: taken out of Other and kept in measuring_seconds.
void subtract_measuring(Observation& seen, double seconds_per_scope);

}  // namespace redline::doctor
