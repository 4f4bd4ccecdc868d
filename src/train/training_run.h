// `redline train`: one job in one run directory, from start or from its newest checkpoint, to its end.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "measure/trace.h"
#include "train/job.h"
#include "train/launch.h"
#include "train/loop/fit_result.h"

namespace redline::train {

struct RunOptions {
  // A run whose checkpoints can all not be used begins at step 0 and keeps them under another name; refused without.
  bool start_afresh = false;
  std::optional<measure::StepRange> trace;
  Launch launch;  // alone, or one of several ranks, of which rank 0 writes
};

struct RunSummary {
  std::filesystem::path directory;
  FitResult fit;
  int64_t started_at_step = 0;
  bool degraded = false;  // a checkpoint could not be written and none since
};

// Sets threads, determinism and the memory limit of the process. Throws what the rooms throw; PreemptedError after a
// signal (the state is saved, the same command continues), DiskError at the end when checkpoints could not be written,
// or when the run directory was taken away (the state is then in the place that it names). A job or a resume that is
// refused leaves the run directory as it was, byte for byte.
RunSummary run_training(Job& job, const RunOptions& options);

// Resolve, open the data, one batch through forward and backward of a copy, memory estimate: the sentences to print.
// Writes nothing.
std::vector<std::string> dry_run(Job& job);

// `redline compile`: the first steps of the job on a copy, with trainer.compile as if it were true, so that the
// packages are in the cache when the run begins. The sentences to print. Writes nothing but the cache.
struct CompiledAhead {
  std::vector<std::string> lines;
  int64_t packages = 0;  // in use at the end
};
CompiledAhead compile_ahead(Job& job, int64_t steps);

// Tensor bytes at the peak of a step over the longest samples allowed, `rows` at once; 0 when the task has no such
// batch. Leaves gradients behind. `in_pieces`: the step has further pieces, so that the second one finds the gradients
// of the first.
int64_t longest_batch_peak(const Job& job, task::Task& task, int64_t rows, bool in_pieces);
// The same for the job's own step.
int64_t longest_batch_peak(const Job& job, task::Task& task);
// Samples computed at once.
int64_t rows_at_once(const Job& job);

// The model under the job's memory limit, for whoever needs it before prepare_process. What follows until then (weights
// read from a disk, which are given back) is not limited.
std::unique_ptr<task::Task> build_within_limit(const Job& job);
// What a process needs before any tensor of a job is made; limits memory too.
void prepare_process(const Job& job);

}  // namespace redline::train
