// `redline probe`: given weights and a given batch through the task and the optimiser, no data engine and no
// augmentation, no schedule of the rate; how every workload is compared with the project it follows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "train/job.h"

namespace redline::train {

struct ProbeInput {
  std::filesystem::path weights, batch;
  int64_t steps = 1;
};

struct ProbeResult {
  std::vector<double> losses;  // one per optimiser step
  std::map<std::string, torch::Tensor>
      tensors;  // "losses", the task's outputs and "grad.<parameter>" of the first step
};

// Names in the weight file that the model does not know, or the reverse, throw CheckpointError; a batch that does not
// fit the task's schema throws DataError.
ProbeResult run_probe(const Job& job, const ProbeInput& input);

// Tensors of a file as a batch: half-precision ones are widened, types are matched to the schema where that loses
// nothing.
task::Batch read_batch(const std::filesystem::path& path, const task::BatchSchema& schema);

}  // namespace redline::train
