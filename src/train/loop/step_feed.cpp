#include "train/loop/step_feed.h"

#include "core/check.h"
#include "train/loop/batches.h"

namespace redline::train {

void StepFeed::begin_step() {
  if (replay_ && pulled_ > 0 && pulled_ == expected_) return;
  batches_.clear();
  expected_ = pulled_ = 0;
}

bool StepFeed::pull() {
  if (expected_ > 0 && pulled_ == expected_) return false;
  std::optional<data::Batch> batch;
  {
    const measure::PhaseScope scope(clock_, measure::Phase::Wait);
    batch = loader_.next();
  }
  REDLINE_CHECK(batch.has_value(), "an epoch has as many steps as its loader says");
  REDLINE_CHECK(batch->micro_batch == pulled_, "micro-batches of a step arrive in order");
  expected_ = batch->num_micro_batches;
  ++pulled_;
  if (batch->sample_ids.empty()) return true;
  const measure::PhaseScope scope(clock_, measure::Phase::Copy);
  batches_.push_back(to_task_batch(*batch, stream_, channels_last_));
  return true;
}

const task::Batch* StepFeed::get(size_t i) {
  while (batches_.size() <= i)
    if (!pull()) return nullptr;
  return &batches_[i];
}

}  // namespace redline::train
