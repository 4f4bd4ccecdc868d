// A job observed before anything is tried, for doctor and tuner alike: where its time goes and what its cadences cost
// the whole run.
#pragma once

#include <functional>

#include "doctor/observation.h"
#include "train/trial.h"
#include "tune/trials/job_source.h"

namespace redline::tune {

// The job's trial after `first_steps`. Throws what the job throws there, under its own exit code, with the word that
// there is nothing to `purpose` ("tune", "diagnose").
std::unique_ptr<train::Trial> start_job(const JobSource& jobs, const config::RequestSource& source,
                                        const train::TrialOptions& options, const char* purpose,
                                        const std::function<void(train::Trial&)>& first_steps);

// What an observation was made of.
struct Look {
  doctor::Observation seen;  // cadences priced for the whole run, own cost taken out
  std::vector<measure::StepRow> rows;
  std::vector<double> validations, monitors, checkpoints;  // seconds of single occurrences
};

struct LookOptions {
  int64_t steps = 100, warmup_steps = 3;
  int64_t log_every_n_steps = 50;  // of the job; a trial may log more often to see what one line costs
  int times = 3;                   // each cadence is timed so often, the first for warm-up
  double long_seconds = 2;         // an occurrence longer than this is timed once
};
// Throws PreemptedError when the process is asked to stop before a step is done.
Look look_at(train::Trial& trial, const LookOptions& options);

// The reference before a search: observed, and what memory it may use.
struct ReferenceLook {
  doctor::Observation seen;
  int64_t steps_per_epoch = 0;
  int64_t memory_limit = 0;  // bytes of tensors
  // The job as it is does not fit `memory_bytes`; with so many rows at once it would. Nothing else is known then.
  std::optional<int64_t> rows_that_fit;
};
// Throws ConfigError: the job fails at its first step (with the job's own words), the budget is too short for one
// trial, or not even one sample or its validation fits `memory_bytes`. Without a budget a second or two is looked at,
// whatever a trial takes.
ReferenceLook look_at_reference(const JobSource& jobs, std::optional<double> budget_seconds, int64_t memory_bytes);

}  // namespace redline::tune
