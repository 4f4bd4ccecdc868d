// The micro-batches of one step: pulled from the loader when first asked for, kept until the step is committed, so that
// a guard can run the very same samples again.
#pragma once

#include <deque>

#include "data/loader.h"
#include "device/tensor_copy.h"
#include "measure/step_clock.h"
#include "task/batch.h"
#include "train/step/agreement.h"

namespace redline::train {

class StepFeed {
 public:
  StepFeed(data::Loader& loader, device::CopyStream* stream, measure::StepClock& clock, Agreement& agreement)
      : loader_(loader), stream_(stream), clock_(clock), agreement_(agreement) {}

  // Forgets the last step's batches.
  void begin_step();
  // Pulls the batches of the next steps now, to hand them out in order: steps whose loader costs nothing (a trial).
  void take_ahead(int64_t steps);
  // Micro-batch i, or null when the step has no more; one that lost all its samples is without rows. Waiting and
  // copying are phases.
  const task::Batch* get(size_t i);
  int64_t num_micro_batches() const { return expected_; }  // known after the first get
  void drop_ahead() { ahead_.clear(); }

 private:
  bool pull();

  data::Loader& loader_;
  device::CopyStream* stream_;
  measure::StepClock& clock_;
  Agreement& agreement_;
  std::deque<task::Batch> batches_;
  int64_t expected_ = 0;
  std::deque<std::deque<task::Batch>> ahead_;
};

}  // namespace redline::train
