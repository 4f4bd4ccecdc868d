// Using a trained run: validation metrics of a checkpoint, and the task's outputs for new data.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/job.h"
#include "train/loop/loop_state.h"
#include "train/loop/validation.h"
#include "train/run/predictions.h"

namespace redline::train {

// "last" (newest that verifies), "best" (by the run's monitored metric), or the path of a generation or .safetensors
// file.
struct ChosenWeights {
  std::filesystem::path path;
  int64_t step = -1;
  std::map<std::string, torch::Tensor> tensors;
  std::optional<LoopState> loop;  // none: the file holds weights only
};
ChosenWeights choose_weights(const std::filesystem::path& run, const std::string& which,
                             const ExpManagerConfig& config);

// Into the task: the weights, and what the task remembered at that step (a KL weight that grows), which its loss
// depends on. Throws CheckpointError when they do not fit.
void load_chosen(const ChosenWeights& chosen, task::Task& task);

// A job read from a run's resolved config, with more overrides on top. Throws DataError when the folder is no run.
std::unique_ptr<Job> read_run_job(const task::Registry& registry, const std::filesystem::path& run,
                                  const std::vector<std::string>& overrides, const MachineFacts& machine);

// Metrics on test_ds when the job has one (limit_test_batches applies), else on validation_ds (limit_val_batches):
// with the run's own data and settings exactly the values that the run recorded at that checkpoint.
ValidationResult evaluate(const Job& job, task::Task& task, const ChosenWeights& chosen);

// The task's predict() over validation_ds (point it at other data with overrides). Deterministic order, every sample
// once.
Predictions predict(const Job& job, task::Task& task);

}  // namespace redline::train
