#include "tune/cadence_solver.h"

#include <algorithm>
#include <cmath>

namespace redline::tune {

int64_t cadence_steps(double occurrence_seconds, double step_seconds, double share, int64_t least) {
  if (occurrence_seconds <= 0 || step_seconds <= 0 || share <= 0 || share >= 1) return std::max<int64_t>(1, least);
  const double steps = occurrence_seconds * (1.0 - share) / (share * step_seconds);
  return std::max<int64_t>(std::max<int64_t>(1, least), static_cast<int64_t>(std::ceil(steps - 1e-9)));
}

int64_t checkpoint_steps(double occurrence_seconds, double step_seconds, double share, double mtbf_seconds) {
  const int64_t cheapest = cadence_steps(occurrence_seconds, step_seconds, share);
  if (mtbf_seconds <= 0 || step_seconds <= 0) return cheapest;
  const double best = std::sqrt(2 * std::max(0.0, occurrence_seconds) * mtbf_seconds) / step_seconds;
  return std::max<int64_t>(cheapest, static_cast<int64_t>(std::llround(best)));
}

}  // namespace redline::tune
