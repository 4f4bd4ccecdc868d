// Which learning rate and weight decay each parameter gets: the task's groups, then rules by name and shape.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "task/task.h"
#include "train/optim/optimizer.h"

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

// Every trainable parameter of the module in the module's order. Throws ConfigError when a task group names a parameter
// that does not exist or twice, and when nothing is trainable. Rules that match nothing are returned in `unused` (worth
// a warning).
std::vector<OptimizedParameter> apply_parameter_rules(torch::nn::Module& module,
                                                      const std::vector<task::ParameterGroup>& groups,
                                                      const ParameterRules& rules,
                                                      std::vector<std::string>* unused = nullptr);

}  // namespace redline::train
