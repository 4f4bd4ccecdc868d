#include <fmt/format.h>

#include <algorithm>

#include "tune/cadence_solver.h"
#include "tune/candidates.h"

namespace redline::tune {

using config::Effect;

std::vector<Candidate> cadence_candidates(const JobView& job, const Observed& observed, double share) {
  std::vector<Candidate> out;
  const double cadence = cadence_seconds_per_step(observed.costs, observed.rates);
  const double step = std::max(1e-9, observed.seen.step_seconds);
  const auto one = [&](const char* field, const char* path, double cost, double rate, int64_t from, int64_t to) {
    if (cost <= 0 || rate <= 0 || from <= 0 || to <= from || job.pinned.count(path) != 0) return;
    const double before = step + cadence;
    const double after = before - cost * rate * (1 - static_cast<double>(from) / static_cast<double>(to));
    const double gain = before / after - 1;
    Candidate c{fmt::format("{} {} -> {}", field, from, to),
                {{path, std::to_string(to)}},
                gain,
                gain,
                Effect::Nothing,
                field,
                field,
                std::to_string(from),
                std::to_string(to)};
    out.push_back(std::move(c));
  };
  // A run keeps two of what it had: one that never validates says nothing.
  double run_steps = job.max_steps > 0 ? static_cast<double>(job.max_steps) : 1e15;
  if (job.max_epochs > 0 && job.steps_per_epoch > 0)
    run_steps = std::min(run_steps, static_cast<double>(job.max_epochs * job.steps_per_epoch));
  const auto twice = [&](double steps, int64_t from, int64_t to) {
    return std::max(from, std::min(to, static_cast<int64_t>(steps / 2)));
  };
  const auto& c = observed.costs;
  one("log_every_n_steps", "trainer.log_every_n_steps", c.log, observed.rates.log, job.log_every_n_steps,
      std::max<int64_t>(cadence_steps(c.log, step, share), std::min<int64_t>(50, 5 * job.log_every_n_steps)));
  if (job.monitors)
    one("monitor.update_frequency", "model.monitor.update_frequency", c.monitor, observed.rates.monitor,
        job.monitor_every, cadence_steps(c.monitor, step, share));
  if (job.val_check_batches) {
    const int64_t batches = *job.val_check_batches;
    one("val_check_interval", kValidationPath, c.validate, observed.rates.validate, batches,
        twice(run_steps * static_cast<double>(job.accumulate), batches,
              std::max(2 * batches, job.accumulate * cadence_steps(c.validate, step, share))));
  }
  if (job.save_every_steps)
    one("every_n_train_steps", kSavePath, c.checkpoint, observed.rates.checkpoint, *job.save_every_steps,
        twice(run_steps, *job.save_every_steps, cadence_steps(c.checkpoint, step, share)));
  return out;
}

}  // namespace redline::tune
