// From options to a running loader: opens the source, makes the plan, chains the transforms.
#pragma once

#include <memory>

#include "data/dataset_config.h"
#include "data/kind.h"
#include "data/loader.h"
#include "data/plan/step_split.h"

namespace redline::data {

// Opens the data the options name, as the kind of the needs. `config` must be resolved.
OpenedData open_data(const DatasetConfig& config, const TaskNeeds& needs);

// The plan's settings for the options; `tarred` and sizes come from the opened data.
PlanSettings plan_settings(const DatasetConfig& config, const TaskNeeds& needs, const OpenedData& data);
std::shared_ptr<const Planner> make_planner(const DatasetConfig& config, const TaskNeeds& needs,
                                            const OpenedData& data);

// How this rank cuts the plan's steps: what the loader does, for tools that only print it.
SplitSettings split_settings(const DatasetConfig& config, const TaskNeeds& needs, const PlanSettings& plan);

// Throws ConfigError, DataError, and DeviceError for pin_memory: true where nothing can be pinned (resolve() would have
// said so).
std::unique_ptr<Loader> build_loader(const DatasetConfig& config, const TaskNeeds& needs);

}  // namespace redline::data
