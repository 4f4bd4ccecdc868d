#include "train/loop/saving.h"

#include "core/time.h"

namespace redline::train {

void Saving::start() {
  began_ns_ = now_ns();
  began_step_ = saved_step_ = state_.at.step;
}

void Saving::loaded() {
  began_step_ = state_.at.step;
  forget();
}

void Saving::now(bool wait) {
  if (parts_.store == nullptr) return;
  const measure::PhaseScope scope(clock_, measure::Phase::Checkpoint);
  if (saved_step_ != state_.at.step) {
    std::optional<double> metric;  // only of a validation of this very state
    const auto found = state_.at.last_validation.find(settings_.save_metric);
    if (validated_step_ == state_.at.step && found != state_.at.last_validation.end()) metric = found->second;
    began_ns_ = now_ns();
    began_step_ = state_.at.step;
    parts_.observer->before_save();
    if (wait)
      parts_.store->save_sync(state_.checkpoint(), state_.at.step, metric);
    else
      parts_.store->save(state_.checkpoint(), state_.at.step, metric);
    saved_step_ = state_.at.step;
  }
  if (wait) parts_.store->wait();
}

void Saving::if_due(const CadenceDecision& decision) {
  if (parts_.store == nullptr) return;
  bool due = decision.validate && settings_.save_on_validation;
  due = due ||
        (decision.epoch_end && settings_.save_every_n_epochs && state_.at.epoch % *settings_.save_every_n_epochs == 0);
  if (!due) {
    IntervalInput input;
    input.steps_since_save = state_.at.step - began_step_;
    input.seconds_since_save = seconds_between(began_ns_, now_ns());
    input.stall_seconds = parts_.store->last_stall_seconds();
    input.write_seconds = parts_.store->last_write_seconds();
    input.slowdown_seconds = parts_.store->last_write_cpu_seconds();
    input.writer_busy = parts_.store->busy();
    due = should_save(settings_.save_interval, input);
  }
  if (due) now(/*wait=*/false);
}

}  // namespace redline::train
