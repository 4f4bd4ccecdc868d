// A stretch: one or more consecutive steps of the plan on their way through the workers. Its chores are samples (or, on
// the fast path, whole micro-batches); whoever finishes the last sample of a group mixes it, whoever finishes the last
// sample of a micro-batch collates it. Counters are atomic, everything else is written by one thread before a counter
// says so.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "data/plan/plan.h"
#include "data/plan/step_split.h"
#include "data/workers/loader_settings.h"
#include "data/workers/sample_chain.h"

namespace redline::data {

// One micro-batch being made. After `done` the consumer owns it.
struct Micro {
  uint32_t begin = 0, end = 0;      // in Stretch::rows
  std::atomic<int32_t> waiting{0};  // samples not ready yet
  std::atomic<bool> done{false};
  Batch batch;                             // its place in the plan is set from the start
  std::vector<std::vector<BadEvent>> bad;  // per row, only when some row has events
  std::exception_ptr error;
};

struct Stretch {
  uint64_t first_sequence = 0;  // number of its first micro-batch since the seek
  std::shared_ptr<const EpochPlan> plan;
  bool whole_batches = false;  // chores are micro-batches, read by a BatchReader

  std::vector<uint32_t> entries;         // samples to read
  std::vector<uint32_t> rows;            // indices into entries, micro-batch by micro-batch
  std::deque<Micro> micros;              // a deque: they cannot move
  std::vector<uint32_t> micro_of;        // per entry; UINT32_MAX for a sample read only to be mixed
  std::vector<EpochPlan::Group> groups;  // of entries; empty when nothing is mixed
  std::vector<uint32_t> group_of;        // per entry
  std::unique_ptr<std::atomic<int32_t>[]> group_waiting;

  std::vector<Sample> samples;             // per entry, until its micro-batch is collated
  std::vector<std::vector<BadEvent>> bad;  // per entry: what was tried before its sample
  std::vector<std::exception_ptr> errors;  // per entry

  uint32_t next_chore = 0;  // guarded by the queue
  uint32_t num_chores() const { return static_cast<uint32_t>(whole_batches ? micros.size() : entries.size()); }
};

// Makes stretches in plan order, epoch after epoch. Not for two threads at once (the queue sees to that), except plan()
// and set_last_epoch().
class StretchMaker {
 public:
  // Keeps a reference to the settings.
  StretchMaker(std::shared_ptr<const Planner> planner, std::function<double(int64_t)> length,
               const LoaderSettings& settings)
      : planner_(std::move(planner)), length_(std::move(length)), settings_(settings) {}

  // nullptr when the epoch of the limit is finished.
  std::unique_ptr<Stretch> make_next();
  void move_to(int64_t epoch, int64_t step);
  // Stretches are made up to the end of this epoch; INT64_MAX = without end.
  void set_last_epoch(int64_t epoch) { last_epoch_.store(epoch, std::memory_order_relaxed); }
  // The plan of an epoch; the two last asked for are kept. Any thread.
  std::shared_ptr<const EpochPlan> plan(int64_t epoch);

 private:
  void add_step(Stretch& stretch, int64_t step) const;
  void finish(Stretch& stretch) const;

  std::shared_ptr<const Planner> planner_;
  std::function<double(int64_t)> length_;
  const LoaderSettings& settings_;
  int64_t epoch_ = 0, step_ = 0;
  std::atomic<int64_t> last_epoch_{INT64_MAX};
  std::mutex plans_mutex_;
  std::shared_ptr<const EpochPlan> plans_[2];
};

}  // namespace redline::data
