#include "train/step/step_feed.h"

#include "core/check.h"
#include "train/step/batches.h"

namespace redline::train {

void StepFeed::begin_step() {
  batches_.clear();
  expected_ = 0;
  if (ahead_.empty()) return;
  batches_ = std::move(ahead_.front());
  expected_ = static_cast<int64_t>(batches_.size());
  ahead_.pop_front();
}

void StepFeed::take_ahead(int64_t steps) {
  ahead_.clear();
  std::deque<std::deque<task::Batch>> taken;
  for (int64_t i = 0; i < steps; ++i) {
    begin_step();
    while (pull()) {
    }
    taken.push_back(std::move(batches_));
  }
  batches_.clear();
  ahead_ = std::move(taken);
}

bool StepFeed::pull() {
  const auto pulled = static_cast<int64_t>(batches_.size());
  if (expected_ > 0 && pulled == expected_) return false;
  std::optional<data::Batch> batch;
  {
    const measure::PhaseScope scope(clock_, measure::Phase::Wait);
    batch = loader_.next();
  }
  REDLINE_CHECK(batch.has_value(), "an epoch has as many steps as its loader says");
  REDLINE_CHECK(batch->micro_batch == pulled, "micro-batches of a step arrive in order");
  expected_ = batch->num_micro_batches;
  const measure::PhaseScope scope(clock_, measure::Phase::Copy);
  batches_.push_back(batch->sample_ids.empty() ? task::Batch() : to_task_batch(*batch, stream_));
  agreement_.same_shape(batches_.back());
  return true;
}

const task::Batch* StepFeed::get(size_t i) {
  while (batches_.size() <= i)
    if (!pull()) return nullptr;
  return &batches_[i];
}

}  // namespace redline::train
