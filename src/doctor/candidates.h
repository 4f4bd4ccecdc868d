// Which switches are worth a look on a job and what each is expected to gain: from the job's values, one observed
// stretch of it and the machine's rates. The doctor prints them as advice, the tuner races them: one list, so that they
// cannot disagree. Which values a switch may take stands in its option row. Pure.
#pragma once

#include <span>
#include <vector>

#include "core/machine_facts.h"
#include "doctor/ceilings.h"
#include "doctor/plan_model.h"

namespace redline::doctor {

inline constexpr double kCadenceShare =
    0.01;  // of the time: what each of log, monitor, validation, checkpoint may cost

// In the order of the rules. `ceilings`: what differential runs showed; they bound the predictions.
std::vector<Candidate> find_candidates(const JobView& job, const Observation& seen, const MachineFacts& machine,
                                       const PlanModel& plans, std::span<const Ceiling> ceilings = {},
                                       double cadence_share = kCadenceShare);

// The switch of a precision: its option, and that it is run as asked.
Setting precision_setting(const JobView& job, const std::string& precision);

}  // namespace redline::doctor
