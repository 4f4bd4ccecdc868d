// See interval.h. Asked-for intervals are kept exactly; the automatic one is the shortest that the overhead limit
// allows.
#include "train/checkpoint/interval.h"

#include <algorithm>
#include <cmath>

namespace redline::train {

double automatic_interval_seconds(const IntervalPolicy& policy, const IntervalInput& input) {
  const double cost = input.stall_seconds + input.slowdown_seconds;
  double seconds = policy.shortest_seconds;
  if (policy.overhead_limit > 0) seconds = std::max(seconds, cost / policy.overhead_limit);
  if (policy.mean_time_between_failures_seconds && cost > 0) {
    seconds = std::max(seconds, std::sqrt(2.0 * cost * *policy.mean_time_between_failures_seconds));
  }
  // The cost limit wins over "at least this often": a slow disk must not eat the run.
  const double longest = policy.overhead_limit > 0 ? std::max(policy.longest_seconds, cost / policy.overhead_limit)
                                                   : policy.longest_seconds;
  return std::min(seconds, longest);
}

bool should_save(const IntervalPolicy& policy, const IntervalInput& input) {
  if (input.writer_busy || input.steps_since_save <= 0) return false;
  if (policy.every_steps && input.steps_since_save >= *policy.every_steps) return true;
  if (policy.every_seconds && input.seconds_since_save >= *policy.every_seconds) return true;
  if (policy.every_steps || policy.every_seconds) return false;
  return input.seconds_since_save >= automatic_interval_seconds(policy, input);
}

}  // namespace redline::train
