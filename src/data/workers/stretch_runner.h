// Does the chores of a stretch: makes samples, mixes groups, collates micro-batches. Holds no lock and knows no queue;
// several threads may run chores of one stretch at once.
#pragma once

#include <atomic>
#include <memory>

#include "data/workers/batch_reader.h"
#include "data/workers/stretch.h"
#include "measure/stage_clock.h"

namespace redline::data {

class StretchRunner {
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
  explicit StretchRunner(Parts parts);

  // Runs chores [begin, end) of the stretch. Returns true when a micro-batch became done.
  bool run(Stretch& stretch, uint32_t begin, uint32_t end, measure::StageClock::Slot& slot);

  const Parts& parts() const { return parts_; }
  // Samples and batches made but not yet taken.
  int64_t buffered_bytes() const { return buffered_bytes_.load(std::memory_order_relaxed); }
  // The consumer took the batch out of a micro, or a seek dropped it.
  void released(int64_t bytes) { buffered_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  // Gives back what an abandoned stretch still holds; call when no chore of it runs any more.
  void drop(Stretch& stretch);

 private:
  void make_sample(Stretch& stretch, uint32_t entry, measure::StageClock::Slot& slot);
  bool sample_ready(Stretch& stretch, uint32_t entry, measure::StageClock::Slot& slot);
  bool mix_group(Stretch& stretch, uint32_t group, measure::StageClock::Slot& slot);
  bool count_down(Stretch& stretch, uint32_t entry, measure::StageClock::Slot& slot);
  void collate_micro(Stretch& stretch, Micro& micro, measure::StageClock::Slot& slot);
  void read_rows(const Stretch& stretch, Micro& micro, measure::StageClock::Slot& slot);
  void read_whole(Stretch& stretch, Micro& micro, measure::StageClock::Slot& slot);
  void finish_micro(Micro& micro);

  Parts parts_;
  BatchPlan batch_plan_;
  std::atomic<int64_t> buffered_bytes_{0};
};

}  // namespace redline::data
