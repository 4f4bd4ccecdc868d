// When a commit has left something that is not finite: back to the copy in memory and forward again over the same
// samples.
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "core/error.h"
#include "core/log.h"
#include "core/time.h"
#include "train/loop/trainer.h"

namespace redline::train {

void Trainer::take_snapshot_if_due() {
  if (!settings_.check_weights || settings_.snapshot_every_n_steps == 0 || state_.step < next_snapshot_) return;
  const measure::PhaseScope scope(clock_, measure::Phase::Checkpoint);
  const int64_t begin = now_ns();
  try {
    snapshot_.take(state(), state_.step);
  } catch (const c10::OutOfMemoryError&) {
    next_snapshot_ = std::numeric_limits<int64_t>::max();
    event("guard.no_snapshot", {{"step", state_.step}});
    log_warning(
        "There is no memory for a copy of the training state; a weight that is not finite after a step cannot be "
        "repaired by replay.");
    return;
  }
  const double seconds = seconds_between(begin, now_ns());
  next_snapshot_ = state_.step + settings_.snapshot_every_n_steps.value_or(
                                     copy_interval(seconds, step_seconds_, settings_.snapshot_overhead));
}

void Trainer::refresh_snapshot() {
  next_snapshot_ = std::min(next_snapshot_, state_.step);
  take_snapshot_if_due();
}

// Training goes before the means to repair it. Not while that is going on: the copy is where it started from.
bool Trainer::give_back_snapshot() {
  if (!snapshot_.exists() || replaying_) return false;
  snapshot_.drop();
  next_snapshot_ = std::numeric_limits<int64_t>::max();
  ++state_.guard_actions;
  event("guard.no_snapshot", {{"step", state_.step}});
  log_warning(fmt::format(
      "Step {}: a sample fits only without the copy of the training state, which is given back; a weight that is not "
      "finite after a step can no longer be repaired by replay.",
      state_.step + 1));
  return true;
}

void Trainer::repair(const std::string& what) {
  ++state_.guard_actions;
  const int64_t target = state_.step, actions = state_.guard_actions;
  event("guard.damaged",
        {{"step", target}, {"tensor", what}, {"replay_from", snapshot_.exists() ? snapshot_.step() : int64_t{-1}}});
  if (!snapshot_.exists() || replaying_) {
    if (snapshot_.exists()) restore(snapshot_.state());
    diverged(fmt::format("After step {} {} is not finite{}.", target, what,
                         replaying_ ? ", again after a replay" : " and there is no copy in memory to go back to"));
  }
  log_warning(fmt::format("After step {} {} is not finite; replaying from the copy of step {}.", target, what,
                          snapshot_.step()));
  const LogSums logged = window_.sums();  // replayed steps are in it already
  restore(snapshot_.state());
  window_.restore(logged);
  state_.guard_actions = actions;
  replaying_ = true;
  while (state_.step < target) {
    const StepOutcome outcome = compute_and_commit();
    const auto damage = outcome.committed ? damaged_after_commit(outcome) : std::nullopt;
    advance(outcome);
    if (damage) repair(*damage);  // throws
  }
  replaying_ = false;
  event("guard.replayed", {{"step", target}, {"from", snapshot_.step()}});
}

void Trainer::diverged(const std::string& why) {
  replaying_ = false;
  std::string where = "no checkpoint was asked for";
  // The last committed state is still good when a step's gradients were bad; after damage, restore() has put the copy
  // back.
  if (parts_.store != nullptr) {
    optimizer_->clear_gradients();
    try {
      save(/*wait=*/true);
      where = fmt::format("the state of step {} is saved", state_.step);
    } catch (const DiskError& error) {
      where = fmt::format("the last good state could not be saved: {}", error.what());
    }
  }
  event("guard.diverged", {{"step", state_.step}, {"why", why}});
  throw DivergedError(
      fmt::format("{} Training diverged; {}. Lower the learning rate, clip gradients (trainer.gradient_clip_val), or "
                  "look at the named samples.",
                  why, where));
}

}  // namespace redline::train
