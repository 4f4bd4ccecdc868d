// The Loader over plan, queue and runner: the consumer's place in the plan, bad-sample policy, statistics. Torch-free.
#pragma once

#include <filesystem>
#include <memory>

#include "data/loader.h"
#include "data/workers/bad_samples.h"
#include "data/workers/job_queue.h"

namespace redline::data {

struct LoaderSettings {
  SplitSettings split;
  int num_workers = 0;
  int64_t prefetch_batches = 2;  // micro-batches made ahead
  int64_t max_buffer_bytes = INT64_MAX;
  bool persistent_workers = true;
  // Work on the next epoch's first batches while the current one ends. Off for validation, which starts again at epoch
  // 0.
  bool continuous = true;
  std::function<void()> on_worker_start;
  std::filesystem::path bad_samples_file;
  BadSampleLimits bad_limits;
};

class OrderedLoader : public Loader {
 public:
  OrderedLoader(LoaderSettings settings, std::shared_ptr<const Planner> planner, JobRunner::Parts parts);
  ~OrderedLoader() override;

  std::optional<Batch> next() override;
  void seek(int64_t epoch, int64_t step) override;
  Position position() const override;
  int64_t steps_per_epoch() const override { return plan_->num_steps(); }
  LoaderStats stats() const override;
  FilterReport filtered() const override { return planner_->filtered(); }

 private:
  void enter_epoch(int64_t epoch);
  void report_bad(const Micro& micro);

  LoaderSettings settings_;
  std::shared_ptr<const Planner> planner_;
  std::shared_ptr<JobRunner> runner_;
  measure::StageClock clock_;
  std::shared_ptr<JobMaker> maker_;
  std::unique_ptr<JobQueue> queue_;
  BadSampleLog bad_log_;

  std::shared_ptr<const EpochPlan> plan_;  // of the consumer's epoch
  int64_t steps_done_ = 0;                 // whole steps delivered in it
  bool inside_step_ = false;
};

}  // namespace redline::data
