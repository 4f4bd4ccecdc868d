// What a task says about data, and the files it is written to: Parquet (a row per sample, read by pandas as it is),
// safetensors (padded tensors) or .npy (one array). Every sample carries its name: file, tar member or row.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "task/task.h"

namespace redline::train {

struct Predictions {
  std::vector<int64_t> sample_ids;
  std::vector<std::string> names;  // as long as sample_ids
  // First dimension: samples in the order of the data; ragged ones padded with 0.
  std::map<std::string, torch::Tensor> outputs;
  // Outputs whose "<name>_lengths" says how far a row goes: the dimension (1: the first of a row) that it counts.
  std::map<std::string, int64_t> ragged;
};

// Adds batches up to Predictions.
class PredictionRows {
 public:
  // Outputs without one row per sample are left out. Throws DataError when an output changes its number of dimensions.
  void add(const std::vector<int64_t>& sample_ids, const std::vector<std::string>& names,
           const std::map<std::string, torch::Tensor>& outputs);
  // With "<name>_mean", the mean over its length, for every ragged output of numbers.
  Predictions finish();

 private:
  Predictions rows_;
  std::map<std::string, std::vector<int64_t>> candidates_;  // dimensions that fitted the lengths of all batches
};

// One sample's own part of an output, without the padding.
torch::Tensor own_rows(const Predictions& predictions, const std::string& name, int64_t sample);

// By the ending of `path`. `output`: which one goes into a .npy; empty: the vector of a sample (an embedding, a mean),
// where there is just one. Throws ConfigError when that is not clear, DiskError.
void write_predictions(const Predictions& predictions, const std::filesystem::path& path,
                       const std::string& output = {});
// The part of that which can be said before the work. Throws ConfigError.
void check_predictions_path(const std::filesystem::path& path);

void write_predictions_parquet(const Predictions& predictions, const std::filesystem::path& path);
// NumPy's format, version 1.0 (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
void write_npy(const std::filesystem::path& path, const torch::Tensor& tensor);

}  // namespace redline::train
