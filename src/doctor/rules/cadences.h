// How often to log, monitor, validate and save, so that each stays under a share of the time: solved from the measured
// cost of one occurrence and of a step.
#pragma once

#include <span>
#include <vector>

#include "doctor/ceilings.h"
#include "doctor/job_view.h"
#include "doctor/observation.h"

namespace redline::doctor {

// Smallest number of steps between two occurrences such that cost / (steps * step + cost) <= share. At least `least`.
int64_t cadence_steps(double occurrence_seconds, double step_seconds, double share, int64_t least = 1);

// Cadences that cost more than `share` of the time, set to what stays below it; in a run that validates or saves,
// at least twice.
std::vector<Candidate> cadence_candidates(const JobView& job, const Observation& seen,
                                          std::span<const Ceiling> ceilings, double share);

}  // namespace redline::doctor
