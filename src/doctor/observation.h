// What a run looked like, boiled down from its step rows: the only thing the rules see of a run, besides settings and
// machine facts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "doctor/cost_fit.h"
#include "measure/phases.h"
#include "measure/run_record.h"

namespace redline::doctor {

// The resolved values the rules ask about; filled by app from the resolved config (0 or empty = unknown).
struct Settings {
  int num_workers = 0, intra_op_threads = 0, prefetch_factor = 0;
  int64_t batch_size = 0, micro_batch_size = 0, accumulate_grad_batches = 1;
  std::string precision, requested_precision;
  int64_t log_every_n_steps = 0;
  std::string monitor_option;  // the task's, that sets monitor_every_steps; empty when it has none
  int64_t monitor_every_steps = 0, save_every_steps = 0, validate_every_steps = 0;
  double val_check_interval = 0;  // as given; <= 1 and val_check_is_fraction: of an epoch
  bool val_check_is_fraction = false;
  bool buckets = false, dynamic_padding = true, shuffles = true;
  bool cache = false, tarred = false, pin_memory = false, channels_last = false;
  double static_loss_scale = 0;  // 0 = dynamic or none
  bool batch_statistics = false;
};

struct PhaseSummary {
  double seconds_per_step = 0;        // amortised over all steps
  double share = 0;                   // of the wall time
  double seconds_per_occurrence = 0;  // median over the steps in which it took time
  int64_t occurrences = 0;
};

struct Observation {
  int64_t steps = 0;
  double step_seconds = 0;  // amortised: wall time over steps
  double samples_per_step = 0, micro_batches_per_step = 0;
  double samples_per_second = 0, iterations_per_second = 0;  // an iteration is a micro-batch, as the guides count
  std::array<PhaseSummary, measure::kNumPhases> phases{};
  std::array<double, measure::kNumStages> stage_seconds_per_step{};  // worker-seconds
  double padding_share = 0;                                          // of the padded items
  int64_t peak_bytes = 0, rss_bytes = 0;
  double step_spread = 0;  // (q90 - q10) / median of the step times
  CostFit costs;           // of items and padding
  // Known only when the run was watched from outside the record; negative = unknown.
  double cores_used = -1, gpu_utilisation = -1;
  double measuring_seconds = 0;  // of a step, spent on measuring it

  const PhaseSummary& phase(measure::Phase p) const { return phases[static_cast<size_t>(p)]; }
  double stage(measure::Stage s) const { return stage_seconds_per_step[static_cast<size_t>(s)]; }
  double loader_worker_seconds() const;  // all stages, per step
};

// Steps before `warmup_steps` are left out (first touches, allocator growth). Requires at least one step after them;
// with fewer rows than that, all rows are used.
Observation observe(std::span<const measure::StepRow> rows, int64_t warmup_steps = 3);

// A cadence of the whole run in place of what the observed steps happened to hold: `seconds` of one occurrence, `rate`
// of them per step.
void amortise(Observation& seen, measure::Phase phase, double seconds, double rate);
// The cost of our own timers, from what one scope costs: taken out of Other and kept in measuring_seconds.
void subtract_measuring(Observation& seen, double seconds_per_scope);

}  // namespace redline::doctor
