// The options `model.optim` with its schedule: NeMo's names; mmcv's `optimizer` and `lr_config` as aliases.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"

namespace redline::train {

// mmcv's paramwise_cfg.custom_keys: the longest key that is part of a parameter's name applies (ties in alphabetical
// order).
struct CustomKey {
  std::string key;
  double lr_mult = 1.0, decay_mult = 1.0;
};

struct ParameterRules {
  double weight_decay = 0.0;
  // "1d" (tensors with at most one dimension), "bias" (names ending in ".bias" or equal to it), or any part of a name.
  std::vector<std::string> no_decay;
  std::vector<CustomKey> custom_keys;
};

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
  double gamma = 0.95;                                                // ExponentialLR
  std::optional<int64_t> decay_steps;                                 // ExponentialLR
  double pct_start = 0.3, div_factor = 25.0, final_div_factor = 1e4;  // OneCycleLR
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
  bool is_adam() const { return name == "adam" || name == "adamw"; }
  ParameterRules rules() const;
};

}  // namespace redline::train
