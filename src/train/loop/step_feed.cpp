#include "train/loop/step_feed.h"

#include "core/check.h"
#include "train/loop/batches.h"

namespace redline::train {

void StepFeed::begin_step() {
  batches_.clear();
  expected_ = pulled_ = 0;
  if (ahead_.empty()) return;
  batches_ = std::move(ahead_.front().batches);
  expected_ = pulled_ = ahead_.front().pulled;
  ahead_.pop_front();
}

void StepFeed::take_ahead(int64_t steps) {
  ahead_.clear();
  std::deque<Ahead> taken;
  for (int64_t i = 0; i < steps; ++i) {
    begin_step();
    while (pull()) {
    }
    taken.push_back({std::move(batches_), pulled_});
  }
  batches_.clear();
  ahead_ = std::move(taken);
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
  batches_.push_back(to_task_batch(*batch, stream_));
  return true;
}

const task::Batch* StepFeed::get(size_t i) {
  while (batches_.size() <= i)
    if (!pull()) return nullptr;
  return &batches_[i];
}

}  // namespace redline::train
