// The `model.optim` section with its schedule: NeMo's names; mmcv's `optimizer` and `lr_config` as aliases.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"
#include "train/optim/optimizer.h"
#include "train/optim/parameter_rules.h"
#include "train/optim/schedule.h"

namespace redline::train {

struct SchedConfig {
  std::string name = "constant";
  std::optional<int64_t> d_model;
  std::optional<int64_t> warmup_steps;
  std::optional<double> warmup_ratio;
  std::optional<int64_t> warmup_epochs;
  std::optional<int64_t> max_steps;
  std::optional<int64_t> constant_steps;
  std::optional<double> constant_ratio;
  double min_lr = 0.0, power = 1.0, warmup_start_factor = 0.1;
  static config::Table<SchedConfig> fields();
};

struct OptimConfig {
  std::string name = "adamw";
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0.0;
  std::optional<double> weight_decay_end;
  bool amsgrad = false, nesterov = false, maximize = false;
  double momentum = 0.0, dampening = 0.0;
  std::vector<std::string> no_decay;
  config::Node custom_keys;  // name part -> {lr_mult, decay_mult}
  std::string scale_lr = "none";
  std::optional<double> base_batch_size;
  std::optional<SchedConfig> sched;

  static config::Table<OptimConfig> fields();
  void check() const;  // throws ConfigError
  OptimizerSettings optimizer() const;
  ParameterRules rules() const;
};

// What the schedule needs to know about the run.
struct RunLength {
  int64_t max_steps = -1;  // optimiser steps; -1 = unknown
  int64_t steps_per_epoch = 0;
  int64_t micro_per_step = 1;
  double effective_batch = 1;
};
// Throws ConfigError when a schedule needs a length nobody gave. `notes` gets sentences worth a warning (schedule
// longer than the run).
Schedule make_schedule(const OptimConfig& config, const RunLength& run, std::vector<std::string>* notes = nullptr);

}  // namespace redline::train
