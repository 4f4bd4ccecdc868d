// The micro-batches of one step: pulled from the loader when first asked for, kept until the step is committed, so that
// a guard can run the very same samples again.
#pragma once

#include <deque>

#include "data/loader.h"
#include "device/tensor_copy.h"
#include "measure/step_clock.h"
#include "task/batch.h"

namespace redline::train {

class StepFeed {
 public:
  StepFeed(data::Loader& loader, device::CopyStream* stream, bool channels_last, measure::StepClock& clock)
      : loader_(loader), stream_(stream), channels_last_(channels_last), clock_(clock) {}

  // Forgets the last step's batches; with `replay` the first step's are used for ever (a trial without the loader).
  void begin_step();
  // Micro-batch i, or null when the step has no more. Waiting and copying are phases. Batches without rows are passed
  // over.
  const task::Batch* get(size_t i);
  int64_t num_micro_batches() const { return expected_; }  // known after the first get
  void set_replay(bool on) { replay_ = on; }

 private:
  bool pull();

  data::Loader& loader_;
  device::CopyStream* stream_;
  bool channels_last_;
  measure::StepClock& clock_;
  std::deque<task::Batch> batches_;
  int64_t expected_ = 0, pulled_ = 0;
  bool replay_ = false;
};

}  // namespace redline::train
