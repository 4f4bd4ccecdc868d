// How often to log, monitor, validate and checkpoint so that each stays under a share of the time: solved from the
// measured cost of one occurrence and of a step. The checkpoint interval also knows what a failure costs (Young 1974,
// Daly 2006).
#pragma once

#include <cstdint>

namespace redline::tune {

// Smallest number of steps between two occurrences such that cost / (steps * step + cost) <= share. At least `least`.
int64_t cadence_steps(double occurrence_seconds, double step_seconds, double share, int64_t least = 1);

// sqrt(2 * cost * time between failures) in steps, never more often than the share allows. mtbf_seconds <= 0: the share
// alone.
int64_t checkpoint_steps(double occurrence_seconds, double step_seconds, double share, double mtbf_seconds);

}  // namespace redline::tune
