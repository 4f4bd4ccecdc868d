#include "doctor/rules/predict.h"

#include <algorithm>
#include <cmath>

namespace redline::doctor {

using measure::Phase;

Prior paid_by_step(int cores) {
  const double shared = 1.0 / std::max(1, cores);
  return {(1 + shared) / 2, (1 - shared) / std::sqrt(12.0)};
}

double miss_of(const Prior& prior, const std::function<double(double)>& gain) {
  const auto log = [&](double share) { return std::log(std::max(0.1, 1 + gain(std::clamp(share, 0.0, 1.0)))); };
  return std::hypot(kLeastMiss, (log(prior.mean + prior.deviation) - log(prior.mean - prior.deviation)) / 2);
}

double predicted_step_seconds(const LoaderModel& model, int workers) {
  const double compute = model.compute_seconds, loader = model.loader_seconds;
  if (workers <= 0) return compute + loader;
  if (model.accelerator) return std::max(compute, loader / std::min(workers, model.cores));
  const int spare = model.cores - model.threads;
  if (spare >= 1) return std::max(compute, loader / std::min(workers, spare));
  // No spare core: a worker shares a core with a training thread, and a parallel region waits for its slowest thread.
  const double paid = model.paid >= 0 ? model.paid : paid_by_step(model.cores).mean;
  return std::max({compute + paid * loader, loader / std::min(workers, model.cores)});
}

double removal_gain(double share) { return share < 0.99 ? 1.0 / (1.0 - share) - 1.0 : 99.0; }

double least_gain(double share, double error) { return removal_gain(std::max(0.0, share - kInterval * error)); }

double compute_share(const Observation& seen) {
  return seen.phase(Phase::Forward).share + seen.phase(Phase::Backward).share;
}

double fixed_share(const Observation& seen) {
  const double rest = seen.phase(Phase::Optimiser).share + seen.phase(Phase::Other).share;
  return std::min(0.99, rest + (seen.costs.known ? compute_share(seen) * seen.costs.fixed_share : 0.0));
}

double predicted_precision_gain(const Observation& seen, double rate_now, double rate_then, double matrix_work) {
  if (rate_now <= 0 || rate_then <= 0) return 0;
  const double moved = matrix_work * compute_share(seen);
  return 1.0 / (1.0 - moved + moved * rate_now / rate_then) - 1.0;
}

double predicted_padding_gain(const Observation& seen, double removed, double beside) {
  const double share = compute_share(seen);
  if (seen.costs.known) return removal_gain(share * seen.costs.padding_share * removed);
  const double kept = 1.0 - seen.padding_share, kept_then = 1.0 - seen.padding_share * (1.0 - removed);
  const double work = kept_then > 0 ? 1.0 - beside * (1.0 - kept / kept_then) : 1.0;
  return 1.0 / (1.0 - share + share * work) - 1.0;
}

}  // namespace redline::doctor
