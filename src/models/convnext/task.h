// Image embeddings as a task: ConvNeXt or the baseline, a classifier or a loss between embeddings, and the embedding
// itself for `redline predict`.
#pragma once

#include <memory>

#include "models/convnext/options.h"
#include "task/registry.h"
#include "task/task.h"

namespace redline::models::convnext {

std::unique_ptr<task::Task> make_convnext_task(Options options, uint64_t seed);
task::TaskEntry convnext_entry();

}  // namespace redline::models::convnext
