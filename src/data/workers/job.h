// A job: one or more consecutive steps of the plan on their way through the workers. Tasks are samples (or, on the fast
// path, whole micro-batches); whoever finishes the last sample of a group mixes it, whoever finishes the last sample of
// a micro-batch collates it. Counters are atomic, everything else is written by one thread before a counter says so.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "data/plan/plan.h"
#include "data/step_split.h"
#include "data/workers/bad_samples.h"
#include "data/workers/sample_chain.h"

namespace redline::data {

// One micro-batch being made. After `done` the consumer owns it.
struct Micro {
  int64_t step = 0;
  int32_t index = 0, count = 1;     // within the step
  uint32_t begin = 0, end = 0;      // in Job::rows
  std::atomic<int32_t> waiting{0};  // samples not ready yet
  std::atomic<bool> done{false};
  Batch batch;
  std::vector<std::vector<BadEvent>> bad;  // per row, only when some row has events
  std::exception_ptr error;
};

struct Job {
  uint64_t first_sequence = 0;  // number of its first micro-batch since the seek
  std::shared_ptr<const EpochPlan> plan;
  bool whole_batches = false;  // tasks are micro-batches, read by a BatchReader

  std::vector<uint32_t> entries;  // samples to read
  std::vector<uint32_t> rows;     // indices into entries, micro-batch by micro-batch
  std::vector<Micro> micros;
  std::vector<uint32_t> micro_of;        // per entry; UINT32_MAX for a sample read only to be mixed
  std::vector<StepSplit::Group> groups;  // of entries; empty when nothing is mixed
  std::vector<uint32_t> group_of;        // per entry
  std::unique_ptr<std::atomic<int32_t>[]> group_waiting;

  struct MicroShape {
    int64_t step;
    int32_t index, count;
    uint32_t begin, end;
  };
  std::vector<MicroShape> pending;  // while the job is built: a Micro cannot move

  std::vector<Row> made;                   // per entry
  std::vector<std::exception_ptr> errors;  // per entry

  uint32_t next_task = 0;  // guarded by the queue
  uint32_t num_tasks() const { return static_cast<uint32_t>(whole_batches ? micros.size() : entries.size()); }
};

// Builds jobs in plan order, epoch after epoch. Not for two threads at once (the queue sees to that), except plan() and
// limit().
class JobMaker {
 public:
  struct Settings {
    SplitSettings split;
    bool whole_batches = false;
    int64_t job_rows = 1;  // steps are added to a job until it has so many rows
  };
  JobMaker(std::shared_ptr<const Planner> planner, std::function<double(int64_t)> length, Settings settings)
      : planner_(std::move(planner)), length_(std::move(length)), settings_(settings) {}

  // nullptr when the epoch of the limit is finished.
  std::unique_ptr<Job> make_next();
  void move_to(int64_t epoch, int64_t step);
  // Jobs are made up to the end of this epoch; INT64_MAX = without end.
  void set_last_epoch(int64_t epoch) { last_epoch_.store(epoch, std::memory_order_relaxed); }
  // The plan of an epoch; the two last asked for are kept. Any thread.
  std::shared_ptr<const EpochPlan> plan(int64_t epoch);

 private:
  void add_step(Job& job, int64_t step) const;
  void finish(Job& job) const;

  std::shared_ptr<const Planner> planner_;
  std::function<double(int64_t)> length_;
  Settings settings_;
  int64_t epoch_ = 0, step_ = 0;
  std::atomic<int64_t> last_epoch_{INT64_MAX};
  std::mutex plans_mutex_;
  std::shared_ptr<const EpochPlan> plans_[2];
};

}  // namespace redline::data
