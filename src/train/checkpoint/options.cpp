// See options.h.
#include "train/checkpoint/options.h"

namespace redline::train {

config::Table<CheckpointConfig> CheckpointConfig::fields() {
  using T = CheckpointConfig;
  config::Table<T> table;
  table
      .add("every_n_train_steps", &T::every_n_train_steps,
           "Save after this many optimiser steps; null: see train_time_interval and overhead_limit.")
      .cadence(config::Counts::Steps)
      .at_least(1)
      .tuned_by("checkpoint")
      .alias(".save_steps");
  table
      .add("every_n_micro_iterations", &T::every_n_micro_iterations,
           "The same, counted in micro-iterations as mmcv does; divided by the accumulation.")
      .unit("micro-iterations")
      .cadence(config::Counts::Batches)
      .at_least(1)
      .alias(".checkpoint_config.interval", {}, "counts micro-iterations (by_epoch: false)");
  table.add("every_n_epochs", &T::every_n_epochs, "Save at the end of every n-th epoch.").unit("epochs").at_least(1);
  table.add("train_time_interval", &T::train_time_interval,
            "Save after this much time, e.g. 10m or 00:00:10:00 (DD:HH:MM:SS).");
  table
      .add("overhead_limit", &T::overhead_limit,
           "Without an interval: save as often as this share of the wall time allows.")
      .range(0.0001, 1.0);
  table
      .add("mean_time_between_failures_seconds", &T::mean_time_between_failures_seconds,
           "When known, the automatic interval is not shorter than Young's optimum for it.")
      .unit("s")
      .above(0);
  table.add("save_on_validation", &T::save_on_validation,
            "Also save after each validation, so that the best model is on disk.");
  table.add("monitor", &T::monitor,
            "The metric that decides which generation is best; auto: val_loss, or the metric that the task names when "
            "its loss changes meaning over training.");
  table.add("mode", &T::mode, "Whether a lower or a higher value of the monitored metric is better.")
      .choices({"min", "max"});
  table.add("save_top_k", &T::save_top_k, "How many of the best generations are kept; -1 keeps all.").at_least(-1);
  table
      .add("max_keep_ckpts", &T::max_keep_ckpts,
           "Upper bound on generations kept; -1: none. The newest two are never deleted.")
      .at_least(-1)
      .alias(".checkpoint_config.max_keep_ckpts")
      .alias(".save_total_limit");
  table
      .add("keep_last", &T::keep_last,
           "How many of the newest generations are kept; at least 2, since one may be damaged when needed.")
      .at_least(2);
  table.add("async", &T::async, "Write in a thread from a copy of the state; the loop waits only for the copy.")
      .effect(config::Effect::Nothing);
  table
      .add("on_error", &T::on_error,
           "When a generation cannot be written twice in a row: train on and end with exit code 7, or stop at once.")
      .choices({"warn", "stop"});
  table.accept("always_save_nemo", {},
               "checkpoints are safetensors; `redline convert` exports them under NeMo's names");
  table.accept("filename", {}, "generations are named after their step");
  return table;
}

}  // namespace redline::train
