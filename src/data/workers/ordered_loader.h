// The Loader over plan, queue and runner: the consumer's place in the plan, bad-sample policy, statistics. Torch-free.
#pragma once

#include <filesystem>
#include <memory>

#include "data/loader.h"
#include "data/workers/bad_samples.h"
#include "data/workers/loader_settings.h"
#include "data/workers/worker_queue.h"

namespace redline::data {

class OrderedLoader : public Loader {
 public:
  OrderedLoader(LoaderSettings settings, std::shared_ptr<const Planner> planner, StretchRunner::Parts parts);
  ~OrderedLoader() override;

  std::optional<Batch> next() override;
  void seek(int64_t epoch, int64_t step) override;
  Position position() const override;
  int64_t steps_per_epoch() const override { return plan_->num_steps(); }
  LoaderStats stats() const override;
  FilterReport filtered() const override { return planner_->filtered(); }
  std::string sample_name(int64_t id) const override;

 private:
  void enter_epoch(int64_t epoch);
  void report_bad(const Micro& micro);

  LoaderSettings settings_;  // of maker and queue too
  std::shared_ptr<const Planner> planner_;
  std::shared_ptr<StretchRunner> runner_;
  measure::StageClock clock_;
  std::shared_ptr<StretchMaker> maker_;
  std::unique_ptr<WorkerQueue> queue_;
  BadSampleLog bad_log_;

  std::shared_ptr<const EpochPlan> plan_;  // of the consumer's epoch
  int64_t steps_done_ = 0;                 // whole steps delivered in it
  bool inside_step_ = false;
};

}  // namespace redline::data
