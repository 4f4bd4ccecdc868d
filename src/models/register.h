// The list of tasks. A new task is a folder here and one line in register.cpp.
#pragma once

#include "task/registry.h"

namespace redline::models {
void register_all(task::Registry& registry);
// What a tensor under another project's name (TaskEntry::from_reference_names) is under ours: that project may order
// its elements otherwise. Throws CheckpointError where the shape cannot be right.
torch::Tensor from_reference_order(const std::string& name, const torch::Tensor& tensor);
// The config that the reference project's file of a model wants (.nemo), from the tree of a run's config.resolved.yaml.
// Throws ConfigError where the run's task has no such file.
std::string reference_config(const config::Node& resolved);
}  // namespace redline::models
