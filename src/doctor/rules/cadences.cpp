#include "doctor/rules/cadences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/strings.h"

namespace redline::doctor {

int64_t cadence_steps(double occurrence_seconds, double step_seconds, double share, int64_t least) {
  if (occurrence_seconds <= 0 || step_seconds <= 0 || share <= 0 || share >= 1) return std::max<int64_t>(1, least);
  const double steps = occurrence_seconds * (1.0 - share) / (share * step_seconds);
  return std::max<int64_t>(std::max<int64_t>(1, least), static_cast<int64_t>(std::ceil(steps - 1e-9)));
}

namespace {

constexpr double kTimedTwice = 0.25;  // relative error of what an occurrence costs, of which a few were timed: a prior

class CadenceRules {
 public:
  CadenceRules(const JobView& job, const Observation& seen, std::span<const Ceiling> ceilings, double share)
      : job_(job), seen_(seen), ceilings_(ceilings), share_(share), step_(seen.bare_step_seconds()) {
    // A run keeps two of what it had: one that never validates says nothing.
    if (job.max_steps > 0) run_steps_ = static_cast<double>(job.max_steps);
    if (job.max_epochs > 0 && job.steps_per_epoch > 0)
      run_steps_ = std::min(run_steps_, static_cast<double>(job.max_epochs * job.steps_per_epoch));
  }

  std::vector<Candidate> run() {
    const measure::PerCadence &once = seen_.cadence_seconds, &often = seen_.cadences_per_step;
    add("log", ExperimentKind::NoLogging, once.log, often.log, job_.log_every_n_steps,
        std::max(steps(once.log), std::min<int64_t>(50, 5 * job_.log_every_n_steps)));
    add("monitor", ExperimentKind::NoMonitor, once.monitor, often.monitor, job_.monitor_every, steps(once.monitor));
    if (job_.steps_per_epoch > 0)
      add("monitor_epochs", ExperimentKind::NoMonitor, once.monitor, often.monitor, job_.monitor_every_epochs,
          (steps(once.monitor) + job_.steps_per_epoch - 1) / job_.steps_per_epoch);
    // val_check_interval counts batches, before accumulation.
    if (const int64_t batches = validation_batches(); batches > 0) {
      const double run = run_steps_ * static_cast<double>(job_.accumulate);
      add("validation", ExperimentKind::NoValidation, once.validate, often.validate, batches,
          twice(run, batches, std::max(2 * batches, job_.accumulate * steps(once.validate))));
    }
    if (job_.save_every_steps)
      add("checkpoint", ExperimentKind::NoCheckpoint, once.checkpoint, often.checkpoint, *job_.save_every_steps,
          twice(run_steps_, *job_.save_every_steps, steps(once.checkpoint)));
    return std::move(out_);
  }

 private:
  int64_t steps(double seconds) const { return cadence_steps(seconds, step_, share_); }
  static int64_t twice(double run, int64_t from, int64_t to) {
    return std::max(from, std::min(to, static_cast<int64_t>(run / 2)));
  }
  int64_t validation_batches() const {
    if (job_.val_check_batches) return *job_.val_check_batches;
    const double often = seen_.cadences_per_step.validate;
    return often > 0 ? std::llround(static_cast<double>(job_.accumulate) / often) : 0;
  }

  void add(const char* rule, ExperimentKind kind, double cost, double often, int64_t from, int64_t to) {
    const config::SearchDimension* const option = job_.switch_of(rule);
    if (option == nullptr || cost <= 0 || often <= 0 || from <= 0 || to <= from) return;
    const double before = seen_.step_seconds;
    const double after = before - cost * often * (1 - static_cast<double>(from) / static_cast<double>(to));
    double gain = before / after - 1;
    if (const Ceiling* const ceiling = find_ceiling(ceilings_, kind)) gain = std::min(gain, ceiling->gain_at_most());
    Candidate c{{},
                {{option->path, std::to_string(to)}},
                gain,
                gain,
                config::Effect::Nothing,
                option->name,
                option->name,
                option->value,
                std::to_string(to)};
    c.deviation = 0.003 + kTimedTwice * std::log1p(gain);
    if (std::string(rule) == "validation" && !job_.val_check_batches)
      c.not_tried = "it is a share of an epoch, which stays one";
    c.name = fmt::format("{} {} -> {}", c.field, c.from, c.to);
    c.reason = fmt::format("one takes {}, one in {:.3g} steps: {:.2g} % of the time", format_seconds(cost), 1 / often,
                           100 * cost * often / before);
    out_.push_back(std::move(c));
  }

  const JobView& job_;
  const Observation& seen_;
  std::span<const Ceiling> ceilings_;
  double share_, step_, run_steps_ = 1e15;
  std::vector<Candidate> out_;
};

}  // namespace

std::vector<Candidate> cadence_candidates(const JobView& job, const Observation& seen,
                                          std::span<const Ceiling> ceilings, double share) {
  return CadenceRules(job, seen, ceilings, share).run();
}

}  // namespace redline::doctor
