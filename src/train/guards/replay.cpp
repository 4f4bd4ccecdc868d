#include "train/guards/replay.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <limits>

#include "core/log.h"
#include "core/time.h"

namespace redline::train {

void Replay::copy_if_due(double step_seconds) {
  if (!config_.check_weights || config_.snapshot_every_n_steps == 0 || state_.at.step < next_step_) return;
  const measure::PhaseScope scope(clock_, measure::Phase::Checkpoint);
  const int64_t begin = now_ns();
  bool taken = true;
  try {
    copy_.take(state_.checkpoint(), state_.at.step);
  } catch (const c10::OutOfMemoryError&) {
    taken = false;
  }
  if (parts_.agreement->any(!taken)) {  // ranks go back together, or not at all
    copy_.drop();
    next_step_ = std::numeric_limits<int64_t>::max();
    parts_.event("guard.no_snapshot", {{"step", state_.at.step}});
    log_warning(
        "There is no memory for a copy of the training state; a weight that is not finite after a step cannot be "
        "repaired by replay.");
    return;
  }
  const double seconds = seconds_between(begin, now_ns());
  const int64_t interval =
      config_.snapshot_every_n_steps.value_or(copy_interval(seconds, step_seconds, config_.snapshot_overhead));
  next_step_ = state_.at.step + static_cast<int64_t>(parts_.agreement->of_first(static_cast<double>(interval)));
}

void Replay::copy_now(double step_seconds) {
  next_step_ = std::min(next_step_, state_.at.step);
  copy_if_due(step_seconds);
}

void Replay::forget() {
  copy_.drop();
  next_step_ = state_.at.step;
}

// Training goes before the means to repair it. Not while that is going on: the copy is where it started from.
bool Replay::give_back() {
  if (!copy_.exists() || running_) return false;
  copy_.drop();
  next_step_ = std::numeric_limits<int64_t>::max();
  ++state_.at.guard_actions;
  parts_.event("guard.no_snapshot", {{"step", state_.at.step}});
  log_warning(fmt::format(
      "Step {}: a sample fits only without the copy of the training state, which is given back; a weight that is not "
      "finite after a step can no longer be repaired by replay.",
      state_.at.step + 1));
  return true;
}

void Replay::repair(const std::string& damage, const Ways& ways) {
  ++state_.at.guard_actions;
  const int64_t target = state_.at.step, actions = state_.at.guard_actions;
  parts_.event("guard.damaged",
               {{"step", target}, {"tensor", damage}, {"replay_from", copy_.exists() ? copy_.step() : int64_t{-1}}});
  if (parts_.agreement->any(!copy_.exists()) || running_) {
    if (copy_.exists()) ways.restore(copy_.state());
    ways.diverge(fmt::format("After step {} {} is not finite{}.", target, damage,
                             running_ ? ", again after a replay" : " and there is no copy in memory to go back to"));
  }
  log_warning(
      fmt::format("After step {} {} is not finite; replaying from the copy of step {}.", target, damage, copy_.step()));
  const LogSums logged = state_.window.sums();  // replayed steps are in it already
  ways.restore(copy_.state());
  state_.window.restore(logged);
  state_.at.guard_actions = actions;
  running_ = true;
  while (state_.at.step < target)
    if (const auto again = ways.again()) repair(*again, ways);  // throws
  running_ = false;
  parts_.event("guard.replayed", {{"step", target}, {"from", copy_.step()}});
}

}  // namespace redline::train
