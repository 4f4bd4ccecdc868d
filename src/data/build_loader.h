// From options to a running loader: opens the source, makes the plan, chains the transforms.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/dataset_config.h"
#include "data/loader.h"
#include "data/source.h"
#include "data/step_split.h"
#include "data/transform.h"

namespace redline::data {

// What the runtime and the task want of the data; train fills it from the Task.
struct TaskNeeds {
  CollateSpec collate;  // may be empty: then every field of the source, under default names (default_collate)
  std::shared_ptr<SampleTransform> sample_transform;
  std::shared_ptr<GroupTransform> group_transform;
  bool batch_statistics = false;
  std::string source_kind = "audio";  // "audio", "parquet", "images", "tensors"
  std::shared_ptr<Source> source;     // "tensors": the source itself; other kinds open theirs from the options

  // Mix groups (batches of batch_size) per optimiser step, over all ranks: accumulate_grad_batches times whatever the
  // trainer counts for ranks. Ranks only split a step.
  int64_t accumulate = 1;
  int rank = 0, world = 1;

  bool training = true;                 // false: validation; no work ahead into the next epoch, synth's validation part
  std::filesystem::path run_directory;  // bad_samples.jsonl goes there; empty: counted only
};

// Opens the data the options name. `config` must be resolved.
struct OpenedData {
  std::shared_ptr<Source> source;
  std::vector<int64_t> part_sizes;  // one per manifest list (static buckets, concat); empty when there is one
  bool tarred = false;
  std::vector<std::filesystem::path> noise_manifests;  // also those that synth made
};
OpenedData open_data(const DatasetConfig& config, const TaskNeeds& needs);

// The plan's settings for the options; `tarred` and sizes come from the opened data.
PlanSettings plan_settings(const DatasetConfig& config, const TaskNeeds& needs, const OpenedData& data);
std::shared_ptr<const Planner> make_planner(const DatasetConfig& config, const TaskNeeds& needs,
                                            const OpenedData& data);

// How this rank cuts the plan's steps: what the loader does, for tools that only print it.
SplitSettings split_settings(const DatasetConfig& config, const TaskNeeds& needs, const PlanSettings& plan,
                             const CollateSpec& collate);

// Throws ConfigError, DataError, and DeviceError for pin_memory: true where nothing can be pinned (resolve() would have
// said so).
std::unique_ptr<Loader> build_loader(const DatasetConfig& config, const TaskNeeds& needs);

// A collation for data without a task: audio with "audio_len", every Parquet column (lists with "<name>_len"), "image"
// and "label".
CollateSpec default_collate(const DatasetConfig& config, const TaskNeeds& needs, const Source& source);

}  // namespace redline::data
