// The reference before anything is tried: where its time goes, what its cadences cost, how much memory it may use.
#pragma once

#include "tune/job_view.h"

namespace redline::tune {

struct JobObservation {
  Observed observed;
  int64_t steps_per_epoch = 0;
  int64_t memory_limit = 0;  // bytes of tensors
  double cast_seconds = 0;   // of rounding the weights that matrix products take, and their gradients back
  // The job as it is does not fit `memory_bytes`; with so many rows at once it would. Nothing else is known then.
  std::optional<int64_t> rows_that_fit;
};

// Throws ConfigError: the job fails at its first step (with the job's own words), the budget is too short for one
// trial, or not even one sample or its validation fits `memory_bytes`. Without a budget a second or two is looked at,
// whatever a trial takes.
JobObservation observe_job(const JobSource& jobs, std::optional<double> budget_seconds, int64_t memory_bytes);

}  // namespace redline::tune
