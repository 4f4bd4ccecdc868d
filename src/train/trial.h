// A short job in this process: the doctor's differential runs and the tuner's trials. A trial keeps task, loader and
// loop alive, so that two can take turns (A B B A) and each call measures warm code. Writes only where it is told to.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "measure/run_record.h"
#include "train/checkpoint/snapshot.h"
#include "train/guards/operator_watch.h"
#include "train/job.h"
#include "train/step/noise_watch.h"

namespace redline::train {

struct TrialOptions {
  // This share of the training samples is left out of training and is the validation data.
  double hold_out = 0;
  bool free_loader = false;  // batches are fetched before the steps begin: a loader that costs nothing
  bool loader_only = false;  // no model: wait and copy
  bool log = true, validate = true, monitor = true, checkpoint = false;
  bool guards = true;
  // Logs, plots and checkpoints go here; empty: a temporary folder that is removed with the trial.
  std::filesystem::path scratch;
};

struct TrialResult {
  std::vector<measure::StepRow> rows;  // of this call
  std::vector<measure::Event> events;
  int64_t peak_bytes = 0;  // of tensors, largest of the rows
  double cores_used = 0;   // CPU time of the process over wall time
};

class Trial {
 public:
  // `source` is a job like any other (overrides included). Throws what reading and building throw.
  Trial(const task::Registry& registry, const config::RequestSource& source, const MachineFacts& machine,
        const TrialOptions& options);
  ~Trial();

  // The same trial in another condition: a free loader, or without parts. What it was built without stays out.
  void vary(const TrialOptions& options);

  // n more steps. Throws what training throws; OutOfMemoryError means the settings do not fit.
  TrialResult run(int64_t steps);
  // The operators of one more step, slowest first.
  std::vector<OperatorTime> run_operators();

  // Seconds of one occurrence outside a step; nullopt when the trial has none.
  std::optional<double> time_validation();
  std::optional<double> time_monitor();
  // What a run loses by one: its wait, and what the writer beside it takes from training at most.
  std::optional<double> time_checkpoint();
  // The validation data as the task measures it, in that precision, at most so many batches (0: all); nothing is
  // recorded. Empty when the trial has none.
  std::map<std::string, double> evaluate(Precision precision, int64_t most_batches = 0);
  int64_t validation_batches() const;  // 0: none
  // Gradient noise from here on (train/step/noise_watch.h). Changes nothing that is computed.
  void watch_noise();
  std::vector<NoiseWatch::Step> take_noise();
  // Forward and backward of the longest samples allowed, on top of what is live (weights, the optimiser's state once a
  // step was made, and the copy of both that repairs start from): tensor bytes at the peak. Throws
  // c10::OutOfMemoryError above the limit; 0 when the task has no such batch.
  int64_t longest_batch_peak_bytes();

  // Weights, optimiser and position of another trial of the same model (or of this one before), for runs that must
  // start alike.
  CheckpointState state() const;  // a copy
  void load(const CheckpointState& state);
  // Where in the data it is; moving there leaves weights and all else as they are.
  struct Place {
    int64_t epoch = 0, step = 0;  // done in that epoch
    bool operator==(const Place&) const = default;
  };
  Place place() const;
  void go_to(const Place& place);

  const Job& job() const;
  task::Task& task();
  int64_t steps_per_epoch() const;
  const LoopSettings& settings() const;
  data::LoaderStats loader_stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redline::train
