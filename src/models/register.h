// The list of tasks. A new task is a folder here and one line in register.cpp.
#pragma once

#include "task/registry.h"

namespace redline::models {
void register_all(task::Registry& registry);
}  // namespace redline::models
