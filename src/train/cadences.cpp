#include "train/cadences.h"

#include "train/checkpoint/interval.h"
#include "train/loop/trainer.h"

namespace redline::train {

measure::PerCadence cadences_per_step(const LoopSettings& settings, int64_t steps_per_epoch, double checkpoint_seconds,
                                      double step_seconds) {
  const auto once_in = [](int64_t steps) { return steps > 0 ? 1.0 / static_cast<double>(steps) : 0; };
  measure::PerCadence per_step;
  per_step.log = once_in(settings.cadence.log_every_n_steps);
  per_step.monitor =
      once_in(settings.cadence.monitor_every_steps) + once_in(settings.cadence.monitor_every_epochs * steps_per_epoch);
  per_step.validate = validations_per_step(settings.cadence, steps_per_epoch);
  const IntervalPolicy& policy = settings.save_interval;
  per_step.checkpoint =
      once_in(policy.every_steps.value_or(0)) + once_in(settings.save_every_n_epochs.value_or(0) * steps_per_epoch);
  if (settings.save_on_validation) per_step.checkpoint += per_step.validate;
  if (!policy.every_steps && checkpoint_seconds > 0) {
    IntervalInput input;
    input.stall_seconds = checkpoint_seconds;
    const double interval = policy.every_seconds.value_or(automatic_interval_seconds(policy, input));
    if (interval > 0) per_step.checkpoint += step_seconds / interval;
  }
  return per_step;
}

}  // namespace redline::train
