// Which learning rate and weight decay each parameter gets: the task's groups, then rules by name and shape.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "task/task.h"
#include "train/optim/optimizer.h"

namespace redline::train {

// Every trainable parameter of the module in the module's order. Throws ConfigError when a task group names a parameter
// that does not exist or twice, and when nothing is trainable. Rules that match nothing are returned in `unused` (worth
// a warning).
std::vector<OptimizedParameter> apply_parameter_rules(torch::nn::Module& module,
                                                      const std::vector<task::ParameterGroup>& groups,
                                                      const ParameterRules& rules,
                                                      std::vector<std::string>* unused = nullptr);

}  // namespace redline::train
