#include "train/guards/guard_config.h"

namespace redline::train {

config::Table<GuardConfig> GuardConfig::fields() {
  using T = GuardConfig;
  config::Table<T> table;
  table.about("A step is computed, checked, then committed; these say what happens when the check fails.");
  table
      .add("non_finite", &T::non_finite,
           "On NaN or infinity in loss or gradients: rerun the same samples in the next safer precision, skip the step "
           "(PyTorch's way), or stop.")
      .choices({"rerun", "skip", "stop"});
  table
      .add("persistent", &T::persistent,
           "When even fp32 is not finite: stop (exit 5, after a checkpoint of the last good state) or skip.")
      .choices({"stop", "skip"});
  table.add("clean_steps", &T::clean_steps, "Steps in the safer precision before the fast one is tried again.")
      .cadence(config::Counts::Steps)
      .at_least(1);
  table
      .add("give_up_after", &T::give_up_after,
           "Failures of the fast precision close together, after which the safer one stays.")
      .at_least(1);
  table.add("max_skipped_steps", &T::max_skipped_steps, "Skipped steps in a row, after which the run stops.")
      .cadence(config::Counts::Steps)
      .at_least(1);
  table.add("out_of_memory", &T::out_of_memory,
            "On out of memory run the step again in smaller pieces, keeping the effective batch; false: exit 6.");
  table.add("check_weights", &T::check_weights,
            "Look for NaN and infinity in the weights after each commit, and replay from a copy in memory when there "
            "are any.");
  table
      .add("snapshot_every_n_steps", &T::snapshot_every_n_steps,
           "How often that copy is made; null: as often as snapshot_overhead allows; 0: never.")
      .cadence(config::Counts::Steps)
      .at_least(0);
  table.add("snapshot_overhead", &T::snapshot_overhead, "Share of the time that copying may cost.").range(0.0001, 1.0);
  return table;
}

}  // namespace redline::train
