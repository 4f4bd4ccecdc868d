// Does the tasks of a job: makes rows, mixes groups, collates micro-batches. Holds no lock and knows no queue; several
// threads may run tasks of one job at once.
#pragma once

#include <atomic>
#include <memory>

#include "data/workers/batch_reader.h"
#include "data/workers/job.h"
#include "measure/stage_clock.h"

namespace redline::data {

class JobRunner {
 public:
  struct Parts {
    std::shared_ptr<const SampleChain> chain;
    std::shared_ptr<const GroupTransform> group_transform;  // may be null
    CollateSpec collate;
    std::shared_ptr<ArrayAllocator> allocator;  // null = heap
    // The fast path; null = not used. Owned by the chain's source.
    const BatchReader* batch_reader = nullptr;
    int64_t max_length = 0;  // rows are cut to this on the fast path
  };
  explicit JobRunner(Parts parts);

  // Runs tasks [begin, end) of the job. Returns true when a micro-batch became done.
  bool run(Job& job, uint32_t begin, uint32_t end, measure::StageClock::Slot& slot);

  bool whole_batches() const { return parts_.batch_reader != nullptr; }
  const Parts& parts() const { return parts_; }
  // Rows and batches made but not yet taken.
  int64_t buffered_bytes() const { return buffered_bytes_.load(std::memory_order_relaxed); }
  // The consumer took the batch out of a micro, or a seek dropped it.
  void released(int64_t bytes) { buffered_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  // Gives back what an abandoned job still holds; call when no task of it runs any more.
  void drop(Job& job);

 private:
  void make_row(Job& job, uint32_t entry, measure::StageClock::Slot& slot);
  bool row_ready(Job& job, uint32_t entry, measure::StageClock::Slot& slot);
  bool mix_group(Job& job, uint32_t group, measure::StageClock::Slot& slot);
  bool count_down(Job& job, uint32_t entry, measure::StageClock::Slot& slot);
  void collate_micro(Job& job, Micro& micro, measure::StageClock::Slot& slot);
  void read_rows(const Job& job, Micro& micro, measure::StageClock::Slot& slot);
  void read_whole(Job& job, Micro& micro, measure::StageClock::Slot& slot);
  void finish_micro(const Job& job, Micro& micro);

  Parts parts_;
  BatchPlan batch_plan_;
  std::atomic<int64_t> buffered_bytes_{0};
};

}  // namespace redline::data
