// One more short stretch before anything is predicted: the job in larger pieces. Steps of one size differ only in the
// length of their samples, and that says little about what more rows at once would cost.
#pragma once

#include <vector>

#include "train/run/trial.h"
#include "tune/job_view.h"

namespace redline::tune {

// Steps with four times the rows at once, warm-up dropped, in about `seconds`; `step_seconds` is what the job's own
// step takes. Empty where that cannot be run: no such batch, no memory for it, no time.
std::vector<measure::StepRow> run_larger_pieces(const JobSource& jobs, const train::Job& job, double seconds,
                                                double step_seconds);

}  // namespace redline::tune
