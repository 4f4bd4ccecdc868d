// Errors and traps in the guides' advice, named when a job or a comparison meets them. Pure: settings and observations
// in, sentences out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/machine_facts.h"
#include "doctor/job_view.h"
#include "doctor/observation.h"

namespace redline::doctor {

struct Trap {
  std::string id;        // stable, for JSON: "iterations_not_samples", ...
  std::string sentence;  // what it is, with the numbers of this job
};

// Two settings of one job compared by iterations per second, as guide 4 does (7.45 -> 3.64 iterations/s at batch 4 ->
// 8).
struct RatePair {
  double batch_before = 0, iterations_per_second_before = 0;
  double batch_after = 0, iterations_per_second_after = 0;
};
// A trap when the two measures disagree: iterations/s fell by more than 5 % while samples/s did not.
std::optional<Trap> iterations_trap(const RatePair& pair);

std::vector<Trap> find_traps(const JobView& job, const Observation& seen, const MachineFacts& machine);

}  // namespace redline::doctor
