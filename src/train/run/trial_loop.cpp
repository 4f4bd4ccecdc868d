#include "train/run/trial_loop.h"

#include "train/signals.h"

namespace redline::train {

void TrialLoop::leave_out(const LeftOut& parts) {
  allowed_ = {!parts.log, !parts.validate, !parts.monitor, !parts.monitor, true};
  may_save_ = !parts.save;
}

void TrialLoop::take_ahead(int64_t count) {
  feed_.take_ahead(std::min(count, steps_per_epoch() - state_.at.step_in_epoch));
}

void TrialLoop::run_loader(int64_t count) {
  clock_.forget_idle();
  for (int64_t i = 0; i < count && !StopFlag::requested(); ++i) {
    clock_.begin_step();
    StepVerdict step;
    feed_.begin_step();
    for (size_t micro = 0; const task::Batch* batch = feed_.get(micro); ++micro) {
      if (batch->size() == 0) continue;
      step.samples += batch->size();
      step.items += batch->items;
      step.padded_items += batch->padded_items;
      ++step.pieces;
    }
    advance(step);
    recording_.row(step);
  }
}

void TrialLoop::go_to(int64_t epoch, int64_t step) {
  feed_.drop_ahead();
  state_.at.epoch = epoch;
  state_.at.step_in_epoch = step;
  enter_epoch(epoch, step);
}

bool TrialLoop::validate_once() {
  if (parts_.validation == nullptr) return false;
  looking_.validate();
  parts_.task.module().train();
  return true;
}

std::map<std::string, double> TrialLoop::evaluate(Precision precision, int64_t most_batches) {
  if (parts_.validation == nullptr) return {};
  CountOrShare limit;
  if (most_batches > 0) limit.count = most_batches;
  std::map<std::string, double> metrics = looking_.measure(precision, limit).metrics;
  parts_.task.module().train();
  return metrics;
}

bool TrialLoop::monitor_once() {
  if (!state_.monitor) return false;
  looking_.monitor(/*plot=*/false);
  return true;
}

bool TrialLoop::save_once() {
  if (parts_.store == nullptr) return false;
  saving_.forget();
  saving_.now(/*wait=*/false);
  return true;
}

}  // namespace redline::train
