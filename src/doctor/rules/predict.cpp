#include "doctor/rules/predict.h"

#include <algorithm>

namespace redline::doctor {

using measure::Phase;

double predicted_step_seconds(const LoaderModel& model, int workers) {
  const double compute = model.compute_seconds, loader = model.loader_seconds;
  if (workers <= 0) return compute + loader;
  if (model.accelerator) return std::max(compute, loader / std::min(workers, model.cores));
  const int spare = model.cores - model.threads;
  if (spare >= 1) return std::max(compute, loader / std::min(workers, spare));
  // No spare core: a worker shares a core with a training thread, and a parallel region waits for its slowest thread,
  // so most of the loader's time is paid by the step. Three quarters is what lies between perfect sharing (1 / cores)
  // and none (1).
  const double paid = model.cores > 1 ? 0.75 : 1.0;
  return std::max({compute + paid * loader, loader / std::min(workers, model.cores)});
}

double removal_gain(double share) { return share < 0.99 ? 1.0 / (1.0 - share) - 1.0 : 99.0; }

double compute_share(const Observation& seen) {
  return seen.phase(Phase::Forward).share + seen.phase(Phase::Backward).share;
}

double fixed_share(const Observation& seen) {
  const double rest = seen.phase(Phase::Optimiser).share + seen.phase(Phase::Other).share;
  return std::min(0.99, rest + (seen.costs.known ? compute_share(seen) * seen.costs.fixed_share : 0.0));
}

double predicted_precision_gain(const Observation& seen, double rate_now, double rate_then) {
  if (rate_now <= 0 || rate_then <= 0) return 0;
  // About three fifths of forward and backward is matrix work in the tasks here; the rest is bound by memory and stays.
  const double moved = 0.6 * compute_share(seen);
  return 1.0 / (1.0 - moved + moved * rate_now / rate_then) - 1.0;
}

double predicted_padding_gain(const Observation& seen, double removed) {
  const double share = compute_share(seen);
  if (seen.costs.known) return removal_gain(share * seen.costs.padding_share * removed);
  const double kept = 1.0 - seen.padding_share, kept_then = 1.0 - seen.padding_share * (1.0 - removed);
  const double work = kept_then > 0 ? kept / kept_then : 1.0;
  return 1.0 / (1.0 - share + share * work) - 1.0;
}

}  // namespace redline::doctor
