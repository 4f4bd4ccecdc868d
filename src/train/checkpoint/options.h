// The options of checkpoints, one table (section `exp_manager.checkpoint_callback_params`, NeMo's and Lightning's
// names; mmcv's as aliases). The loop resolves `every_n_micro_iterations` (mmcv counts micro-iterations) with its
// accumulation before use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/fields.h"

namespace redline::train {

struct CheckpointConfig {
  std::optional<int64_t> every_n_train_steps;       // optimiser steps
  std::optional<int64_t> every_n_micro_iterations;  // mmcv: checkpoint_config.interval with by_epoch: false
  std::optional<int64_t> every_n_epochs;
  std::optional<std::string> train_time_interval;  // "10m", "00:00:10:00"
  double overhead_limit = 0.03;                    // share of wall time that saving may cost when no interval is given
  std::optional<double> mean_time_between_failures_seconds;
  bool save_on_validation = true;     // a generation after each validation, so that `best` is always on disk
  config::Auto<std::string> monitor;  // auto: the task's (TaskConfig::monitor_metric)
  std::string mode = "min";
  int64_t save_top_k = 1;  // best by `monitor`; -1 keeps all, 0 none
  int64_t max_keep_ckpts =
      -1;                 // upper bound on generations kept, best included; -1 = no bound; at least 2 are always kept
  int64_t keep_last = 2;  // newest generations, whatever their metric; at least 2
  bool async = true;
  std::string on_error = "warn";  // "warn": train on, exit 7 at the end; "stop": exit 7 at once

  static config::Table<CheckpointConfig> fields();
};

}  // namespace redline::train
