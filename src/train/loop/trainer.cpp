#include "train/loop/trainer.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include "core/check.h"
#include "core/error.h"
#include "core/log.h"
#include "core/time.h"
#include "device/memory.h"

namespace redline::train {

namespace {

LoopParts with_company(LoopParts parts, Agreement& alone) {
  if (parts.agreement == nullptr) parts.agreement = &alone;
  return parts;
}

}  // namespace

Trainer::Trainer(const LoopParts& parts, LoopSettings settings)
    : parts_(with_company(parts, alone_)),
      agreement_(*parts_.agreement),
      settings_(std::move(settings)),
      state_(parts_, settings_),
      feed_(parts_.train, parts_.stream, clock_, agreement_),
      sync_(agreement_.sync_gradients(parts_.task, clock_)),
      program_(parts_.task, settings_.device, clock_, agreement_, sync_.get(), settings_.compile,
               [this](const std::string& kind, const measure::FieldList& fields) { parts_.event(kind, fields); }),
      engine_({parts_.task, *state_.optimizer, state_.ema.get(), feed_, program_, agreement_, clock_}, settings_.step),
      replay_(parts_, settings_.guards, state_, clock_),
      guarded_(parts_, settings_, state_, engine_, replay_, [this](const std::string& why) { diverged(why); }),
      recording_(parts_, settings_, state_, clock_),
      looking_(parts_, settings_, state_, clock_),
      saving_(parts_, settings_, state_, clock_) {
  if (parts_.observer == nullptr) parts_.observer = &silent_;
  if (state_.monitor) {
    settings_.cadence.monitor_every_steps = state_.monitor->update_every_steps();
    settings_.cadence.monitor_every_epochs = state_.monitor->update_every_epochs();
    // Also where nothing is drawn: what ranks ask each other follows from when rank 0 draws.
    settings_.cadence.plot_every_steps = state_.monitor->plot_every_steps();
    settings_.cadence.plot_every_epochs = state_.monitor->plot_every_epochs();
  }
  if (parts_.validation == nullptr) settings_.cadence.validation = false;
  parts_.task.module().train();
  enter_epoch(0, 0);
}

void Trainer::attach(CheckpointStore* store, LoopObserver* observer) {
  parts_.store = store;
  parts_.observer = observer;
}

void Trainer::load(const CheckpointState& checkpoint) {
  restore(checkpoint);
  const LoopState& at = state_.at;
  if (!at.plan_hash)
    log_info(
        "The checkpoint is from an older redline that hashed data plans in another way, so its order of samples cannot "
        "be compared; it continues at its place in this job's order.");
  else if (const uint64_t plan = parts_.train.position().plan_hash; plan != *at.plan_hash)
    log_warning(
        "The checkpoint was made with another data plan (other data, seed, batch size or order); training continues "
        "with the new one.");
  if (!at.log_window && settings_.cadence.log_every_n_steps > 0 && at.step % settings_.cadence.log_every_n_steps != 0)
    log_info(
        "The checkpoint is of an older version and does not hold what was summed since the last log line: the first "
        "line after this resume covers fewer steps.");
  program_.continue_with(at.compile);
  replay_.forget();
  saving_.loaded();
}

void Trainer::restore(const CheckpointState& checkpoint) {
  feed_.drop_ahead();
  state_.restore(checkpoint);
  enter_epoch(state_.at.epoch, state_.at.step_in_epoch);
}

void Trainer::enter_epoch(int64_t epoch, int64_t step) {
  // At its natural end an epoch is left by asking once more: that keeps what was made ahead for the next.
  const data::Position now = parts_.train.position();
  if (step == 0 && now.epoch + 1 == epoch && now.step == parts_.train.steps_per_epoch())
    REDLINE_CHECK(!parts_.train.next().has_value(), "an epoch ends after its last step");
  parts_.train.seek(epoch, step);  // free when the loader is there already
  steps_this_epoch_ =
      limited_steps(parts_.train.steps_per_epoch(), settings_.limit_train_batches, settings_.cadence.batches_per_step);
  if (steps_this_epoch_ < 1)
    throw DataError(
        "The training data makes no batch: with these settings (batch_size, drop_last, limits) an epoch has 0 steps.");
}

void Trainer::advance(const StepVerdict& step) {
  LoopState& at = state_.at;
  ++at.step;
  ++at.step_in_epoch;
  at.samples_seen += step.samples;
  if (!step.committed) ++at.skipped_steps;
  if (step.committed) {
    last_loss_ = step.loss();
    parts_.task.committed(at.step);
  }
  if (at.step_in_epoch < steps_this_epoch_) return;
  ++at.epoch;
  at.step_in_epoch = 0;
  enter_epoch(at.epoch, 0);
}

void Trainer::one_step() {
  clock_.begin_step();
  device::memory::begin_step();
  recording_.begin_step();
  StepVerdict step = guarded_.make();
  recording_.end_compute(engine_.pass().precision);
  if (step.stop) return;
  state_.at.compile = program_.progress();
  if (step.damaged_before) return repair(guarded_.late_damage());  // this step is made again
  if (sync_) recording_.exchanged(sync_->take_timeline());
  const CadencePosition position{state_.at.step + 1, state_.at.epoch, state_.at.step_in_epoch + 1, steps_this_epoch_};
  std::optional<std::string> damage;
  if (step.committed) {
    const measure::PhaseScope scope(clock_, measure::Phase::Optimiser);
    damage = guarded_.damage(step, needs_sound_weights(position));
  }
  if (step.committed && parts_.observer->wants_samples()) {
    std::vector<int64_t> ids;
    for (const task::Batch* batch : engine_.batches())
      ids.insert(ids.end(), batch->sample_ids.begin(), batch->sample_ids.end());
    parts_.observer->samples(position.step, position.epoch, ids);
  }
  advance(step);
  if (damage) {
    repair(*damage);
    step.flags |= measure::kStepRetriedPrecision;
  }
  const CadenceDecision decision = after_step(step, position);
  recording_.row(step);
  // After the row, so that a checkpoint never knows of a step the record does not; the time belongs to the next step's
  // Checkpoint phase.
  if (may_save_ && !guarded_.damage_pending()) saving_.if_due(decision);
  replay_.copy_if_due(recording_.step_seconds());
}

// What comes after this step looks at the weights or keeps them.
bool Trainer::needs_sound_weights(const CadencePosition& position) const {
  const CadenceDecision next = decide_cadence(settings_.cadence, position);
  return next.validate || next.monitor || next.plot || next.epoch_end || replay_.due_after(position.step);
}

CadenceDecision Trainer::after_step(const StepVerdict& step, const CadencePosition& position) {
  state_.window.add(step);
  CadenceDecision decision = decide_cadence(settings_.cadence, position);
  decision.log = decision.log && allowed_.log;
  decision.validate = decision.validate && allowed_.validate;
  decision.monitor = decision.monitor && allowed_.monitor;
  decision.plot = decision.plot && allowed_.plot && !settings_.plot_directory.empty();
  if (state_.monitor && step.committed && (decision.monitor || decision.plot)) looking_.monitor(decision.plot);
  if (decision.log) recording_.log(step, position);
  if (decision.validate) {
    if (looking_.validate()) saving_.validated();
    decision.validate = !state_.at.pending_validation;
  }
  look_after_epoch(decision);
  return decision;
}

// A monitor that looks at whole sets wants those of this epoch: a validation that was stopped is made up for first.
void Trainer::look_after_epoch(const CadenceDecision& decision) {
  if (!state_.monitor || state_.at.pending_validation) return;
  const bool update = decision.epoch_monitor && allowed_.monitor,
             plot = decision.epoch_plot && allowed_.plot && !settings_.plot_directory.empty();
  if (update || plot) looking_.monitor(plot);
}

void Trainer::repair(const std::string& damage) {
  const auto again = [&] {
    const StepVerdict step = guarded_.make();
    const auto damaged = guarded_.damage(step);
    advance(step);
    return damaged;
  };
  replay_.repair(damage, {[&](const CheckpointState& state) { restore(state); }, again,
                          [&](const std::string& why) { diverged(why); }});
}

void Trainer::diverged(const std::string& why) {
  replay_.give_up();
  std::string where = "no checkpoint was asked for";
  // The last committed state is still good when a step's gradients were bad; after damage, the copy has been put back.
  if (parts_.store != nullptr) {
    engine_.forget_gradients();
    try {
      saving_.now(/*wait=*/true);
      where = fmt::format("the state of step {} is saved", state_.at.step);
    } catch (const DiskError& error) {
      where = fmt::format("the last good state could not be saved: {}", error.what());
    }
  }
  agreement_.wait_for_all();
  parts_.event("guard.diverged", {{"step", state_.at.step}, {"why", why}});
  throw DivergedError(
      fmt::format("{} Training diverged; {}. Lower the learning rate, clip gradients (trainer.gradient_clip_val), or "
                  "look at the named samples.",
                  why, where));
}

void Trainer::run_steps(int64_t count) {
  clock_.forget_idle();
  parts_.task.module().train();
  replay_.copy_if_due(recording_.step_seconds());
  for (int64_t i = 0; i < count && agreement_.stop_signal() == 0; ++i) one_step();
}

FitResult Trainer::fit() {
  std::unique_ptr<torch::autograd::DetectAnomalyGuard> anomaly;
  if (settings_.detect_anomaly) anomaly = std::make_unique<torch::autograd::DetectAnomalyGuard>();
  const int64_t begin_ns = agreement_.now_ns();
  saving_.start();
  recording_.start();
  clock_.forget_idle();
  parts_.task.module().train();
  replay_.copy_if_due(recording_.step_seconds());
  if (settings_.sanity_batches != 0 && state_.at.step == 0 && parts_.validation != nullptr) looking_.try_validation();
  if (state_.at.pending_validation && parts_.validation != nullptr && looking_.validate()) {
    saving_.validated();
    CadenceDecision decision;
    if (state_.at.step_in_epoch == 0) decide_epoch_looks(settings_.cadence, state_.at.epoch, decision);
    look_after_epoch(decision);
  }
  FitResult result;
  while (looking_.early_stop().empty() && agreement_.stop_signal() == 0) {
    result.stop =
        decide_stop(settings_.cadence, state_.at.step, state_.at.epoch, seconds_between(begin_ns, agreement_.now_ns()));
    if (result.stop != StopReason::None) break;
    one_step();
  }
  if (!agreement_.alone() && agreement_.any(guarded_.damage_pending())) {
    agreement_.tell_damage(false);  // all know now: the first step that is made again is not to hear of it
    repair(guarded_.late_damage());
  }
  if (agreement_.stop_signal() != 0) saving_.forget();  // a validation may have been interrupted since the last save
  saving_.now(/*wait=*/true);
  agreement_.wait_for_all();  // nobody leaves before the last state is safe
  if (const CompiledStep::Count count = program_.take_count(); count.all() > 0) {
    parts_.event("compile.share", {{"compiled", count.compiled},
                                   {"all", count.all()},
                                   {"rare", count.rare},
                                   {"waiting", count.waiting},
                                   {"refused", count.refused}});
    log_info(compiled_share_text(count));
  }
  result.early_stop = looking_.early_stop();
  result.stop_signal = agreement_.stop_signal();
  result.steps = state_.at.step;
  result.epochs = state_.at.epoch;
  result.last_loss = last_loss_;
  result.last_validation = state_.at.last_validation;
  return result;
}

}  // namespace redline::train
