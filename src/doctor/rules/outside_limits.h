// What is around the job and not in it: cores that others use, a quota, an affinity, stops, a slow clock, a lack of
// memory, a disk that cannot follow. Each with its evidence, what to do, and what lifting it would gain. Pure.
#pragma once

#include "doctor/verdict.h"

namespace redline::doctor {

std::vector<LimitScore> outside_limits(const JobView& job, const Observation& seen, const MachineFacts& machine);

// A disk that reads or confirms more slowly than one of today does, and who shares it; in the order reads, checkpoints,
// others.
std::vector<LimitScore> slow_disk(const JobView& job, const Observation& seen, const MachineFacts& machine);

}  // namespace redline::doctor
