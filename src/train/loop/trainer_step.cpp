// One step: attempts until it is sound, then commit. Guards act here.
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cmath>

#include "core/check.h"
#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "device/memory.h"
#include "measure/faults.h"
#include "train/loop/batches.h"
#include "train/loop/non_finite.h"
#include "train/loop/trainer.h"
#include "train/optim/gradients.h"
#include "train/signals.h"

namespace redline::train {

namespace {

using measure::Phase;
using measure::PhaseScope;

// Commit must not fail half way: the accounting allocator neither counts nor refuses meanwhile.
class NoRefusals {
 public:
  NoRefusals() : was_(device::memory::enabled()) { device::memory::set_enabled(false); }
  ~NoRefusals() { device::memory::set_enabled(was_); }

 private:
  bool was_;
};

constexpr int64_t kMostEmptySteps = 100;

}  // namespace

void Trainer::add_pieces(const task::Batch& batch) {
  int64_t begin = 0;
  for (const int64_t rows : memory_.pieces(batch.size(), batch_cost(batch))) {
    piece_rows_ = rows;
    piece_cost_ = std::max<int64_t>(1, batch_cost(batch) * rows / batch.size());
    compute_.add(narrow_batch(batch, schema_, begin, rows));
    begin += rows;
  }
}

Trainer::Attempt Trainer::attempt(Precision precision, StepOutcome& outcome) {
  optimizer_->clear_gradients();
  parts_.task.begin_attempt();
  step_batches_.clear();
  piece_rows_ = piece_cost_ = 0;
  try {
    pass_ = {settings_.seed, state_.step, precision, precision == Precision::Fp16Mixed ? scaler_.scale() : 1.0, 1};
    if (measure::faults::take("nan.scale")) pass_.loss_scale = std::nan("");
    for (size_t i = 0;; ++i) {
      if (!replaying_ && StopFlag::requested()) return Attempt::Stopped;
      const task::Batch* batch = feed_.get(i);
      if (batch == nullptr) break;
      if (!schema_checked_) {
        task::check_batch(schema_, *batch);
        schema_checked_ = true;
      }
      if (i == 0) {
        const auto pieces = static_cast<int64_t>(memory_.pieces(batch->size(), batch_cost(*batch)).size());
        pass_.expected_pieces = feed_.num_micro_batches() * pieces;
        compute_.begin(pass_);
      }
      step_batches_.push_back(batch);
      add_pieces(*batch);
    }
    REDLINE_CHECK(!step_batches_.empty(), "a step has at least one micro-batch with rows");
    outcome.result = compute_.finish();
    return Attempt::Done;
  } catch (const c10::OutOfMemoryError& error) {
    compute_.abandon();
    optimizer_->clear_gradients();
    on_out_of_memory(error.what_without_backtrace());
    return Attempt::OutOfMemory;
  }
}

void Trainer::on_out_of_memory(const std::string& what) {
  const auto stats = device::memory::stats();
  const std::string budget =
      fmt::format("live tensor memory {}, limit {}", format_bytes(static_cast<uint64_t>(stats.live_bytes)),
                  device::memory::limit() > 0 ? format_bytes(static_cast<uint64_t>(device::memory::limit())) : "none");
  if (!settings_.memory_guard)
    throw OutOfMemoryError(
        fmt::format("Step {} ran out of memory ({}): {} Lower the batch size or raise trainer.memory_limit.",
                    state_.step + 1, budget, what));
  // Before any piece ran there is nothing to split: the whole micro-batch is what did not fit.
  const int64_t rows = piece_rows_ > 0 ? piece_rows_ : step_batches_.empty() ? 1 : step_batches_.back()->size();
  const int64_t cost = piece_cost_ > 0 ? piece_cost_ : rows;
  if (!memory_.on_out_of_memory(rows, cost)) {
    if (give_back_snapshot()) return;
    throw OutOfMemoryError(
        fmt::format("Step {}: one sample does not fit in memory ({}). Shorten the samples (max_duration, "
                    "max_sequence_length), use a smaller "
                    "model, or raise trainer.memory_limit.",
                    state_.step + 1, budget));
  }
  ++state_.guard_actions;
  event("guard.out_of_memory", {{"step", state_.step + 1},
                                {"rows", rows},
                                {"piece_cost", memory_.limit()},
                                {"live_bytes", stats.live_bytes},
                                {"limit_bytes", device::memory::limit()},
                                {"changes_batch_statistics", parts_.task.batch_statistics()}});
  log_warning(fmt::format(
      "Step {} ran out of memory with {} samples at once ({}); running the same samples in smaller pieces, the "
      "effective batch stays.{}",
      state_.step + 1, rows, budget,
      parts_.task.batch_statistics() ? " This model's BatchNorm now sees smaller batches, which changes its statistics."
                                     : ""));
}

// Loss, gradients and statistics finite? Also takes the gradient's norm.
bool Trainer::is_sound(StepOutcome& outcome) {
  const PhaseScope scope(clock_, Phase::Optimiser);
  const std::vector<torch::Tensor> gradients = optimizer_->gradients();
  const GradientCheck check = check_gradients(gradients);
  outcome.grad_norm = check.norm / outcome.result.divisor;
  std::vector<torch::Tensor> statistics;
  for (const task::BatchNormUpdate& update : outcome.result.batch_norm) {
    statistics.push_back(update.batch_mean);
    statistics.push_back(update.batch_var_unbiased);
  }
  return std::isfinite(outcome.result.loss) && check.finite && std::isfinite(outcome.grad_norm) &&
         std::isfinite(outcome.result.divisor) && outcome.result.divisor != 0.0 && !first_non_finite(statistics);
}

void Trainer::poison_for_tests() {
  if (measure::faults::take("nan.gradient"))
    for (const torch::Tensor& gradient : optimizer_->gradients())
      if (gradient.defined()) {
        gradient.view(-1)[0] = std::nan("");
        break;
      }
  if (measure::faults::take("nan.optimizer") && !optimizer_->state_tensors().empty())
    optimizer_->state_tensors()[0].view(-1)[0] = std::nan("");
}

void Trainer::clip_values(StepOutcome& outcome) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor gradient : optimizer_->gradients())
    if (gradient.defined()) gradient.div_(outcome.result.divisor).clamp_(-settings_.clip, settings_.clip);
  outcome.result.divisor = 1.0;
}

void Trainer::commit(StepOutcome& outcome) {
  const PhaseScope scope(clock_, Phase::Optimiser);
  const NoRefusals no_refusals;
  double divisor = outcome.result.divisor;
  if (settings_.clip > 0 && settings_.clip_by_value) {
    clip_values(outcome);
    divisor = 1.0;
  } else if (settings_.clip > 0) {
    divisor /= clip_factor(outcome.grad_norm, settings_.clip);
  }
  if (settings_.weight_decay_end && settings_.schedule_steps > 0 && settings_.rules.weight_decay > 0) {
    const double share =
        std::min(1.0, static_cast<double>(state_.step) / static_cast<double>(settings_.schedule_steps));
    const double end = *settings_.weight_decay_end / settings_.rules.weight_decay;
    optimizer_->set_decay_scale(end + (1.0 - end) * 0.5 * (1.0 + std::cos(M_PI * share)));
  }
  outcome.weights_finite = optimizer_->step(outcome.learning_rate, divisor, parts_.task.groups_to_update());
  apply_batch_norm(outcome.result.batch_norm);
  if (ema_ && (state_.step + 1) % settings_.ema->every_n_steps == 0) ema_->update();
  if (pass_.precision == Precision::Fp16Mixed) scaler_.update(false);
  optimizer_->clear_gradients();
  outcome.committed = true;
}

std::optional<std::string> Trainer::damaged_after_commit(const StepOutcome& outcome) const {
  if (!settings_.check_weights || (outcome.weights_finite && settings_.device.is_cpu())) return std::nullopt;
  const auto weight = first_non_finite(weights_);
  if (!weight) return std::nullopt;
  // The cause is usually in the optimiser's state: name it when it is.
  if (const auto state = first_non_finite(optimizer_->state_tensors()))
    return "optimiser state " + optimizer_->state_names()[*state];
  return "weight " + optimizer_->parameters()[*weight].name;
}

GuardAction Trainer::on_non_finite(StepOutcome& outcome) {
  const std::vector<torch::Tensor> gradients = optimizer_->gradients();
  const GradientCheck check = check_gradients(gradients);
  const bool loss_finite = std::isfinite(outcome.result.loss);
  NonFiniteEvidence evidence{step_batches_, compute_.poisoned_piece(), pass_, loss_finite,
                             check.finite ? "" : optimizer_->parameters()[check.first_non_finite].name};
  optimizer_->clear_gradients();
  const NonFiniteReport report = explain_non_finite(parts_.task, *optimizer_, settings_.device, evidence);
  const bool overflow = pass_.precision == Precision::Fp16Mixed && loss_finite;
  if (pass_.precision == Precision::Fp16Mixed) scaler_.update(true);
  const Precision failed = pass_.precision;
  const GuardAction action = precision_.on_non_finite();
  ++state_.guard_actions;
  const char* next = action == GuardAction::Rerun  ? precision_name(precision_.precision())
                     : action == GuardAction::Skip ? "skip"
                                                   : "stop";
  event("guard.non_finite", {{"step", state_.step + 1},
                             {"precision", std::string(precision_name(failed))},
                             {"tensor", report.tensor},
                             {"samples", sample_ids_text(report.samples, 64)},
                             {"loss", fmt::format("{}", outcome.result.loss)},
                             {"grad_norm", fmt::format("{}", outcome.grad_norm)},
                             {"loss_scale", pass_.loss_scale},
                             {"action", std::string(next)},
                             {"stays", precision_.stays()}});
  const std::string cause =
      overflow
          ? fmt::format(
                " The gradients overflowed at loss scale {}, which calls for a lower scale{}.", pass_.loss_scale,
                scaler_.settings().dynamic ? fmt::format(" (now {})", scaler_.scale()) : "; set trainer.amp.loss_scale")
          : "";
  if (action == GuardAction::Rerun)
    log_warning(
        fmt::format("Step {} was not finite in {}: first in {} (samples {}).{} Running the same samples in {}{}.",
                    state_.step + 1, precision_name(failed), report.tensor, sample_ids_text(report.samples), cause,
                    next, precision_.stays() ? ", and staying there" : ""));
  else if (action == GuardAction::Skip)
    log_warning(fmt::format("Step {} was not finite in {}: first in {} (samples {}).{} The step is skipped.",
                            state_.step + 1, precision_name(failed), report.tensor, sample_ids_text(report.samples),
                            cause));
  else
    diverged(fmt::format("Step {} is not finite in {}: first in {} (samples {}).", state_.step + 1,
                         precision_name(failed), report.tensor, sample_ids_text(report.samples)));
  return action;
}

Trainer::StepOutcome Trainer::compute_and_commit() {
  StepOutcome outcome;
  outcome.learning_rate = settings_.schedule.at(state_.step);
  feed_.begin_step();
  uint32_t flags = 0;
  while (true) {
    const Attempt result = attempt(precision_.precision(), outcome);
    if (result == Attempt::Stopped) {
      compute_.abandon();
      optimizer_->clear_gradients();
      outcome.stopped = true;
      return outcome;
    }
    if (result == Attempt::OutOfMemory) {
      flags |= measure::kStepSplitForMemory;
      continue;
    }
    if (outcome.result.weight == 0.0) {
      if (++empty_in_row_ == 1 || empty_in_row_ == kMostEmptySteps) event("step.empty", {{"step", state_.step + 1}});
      if (empty_in_row_ >= kMostEmptySteps)
        throw DataError(fmt::format(
            "The last {} steps had nothing to learn from: the task's loss has weight 0 for all their samples.",
            kMostEmptySteps));
      log_warning_once(
          "A step had nothing to learn from (the loss has weight 0 for all its samples); such steps are skipped and "
          "counted.");
      flags |= measure::kStepSkipped;
      break;
    }
    poison_for_tests();
    if (is_sound(outcome)) {
      commit(outcome);
      empty_in_row_ = 0;
      if (precision_.on_commit()) {
        event("guard.precision_return",
              {{"step", state_.step + 1}, {"precision", std::string(precision_name(precision_.precision()))}});
        log_info(fmt::format("Back to precision {} from step {} on.", precision_name(precision_.precision()),
                             state_.step + 2));
      }
      break;
    }
    if (on_non_finite(outcome) == GuardAction::Skip) {
      precision_.on_skip();
      flags |= measure::kStepSkipped;
      break;
    }
    flags |= measure::kStepRetriedPrecision;
  }
  if (memory_.limit() > 0 && outcome.result.pieces > feed_.num_micro_batches()) flags |= measure::kStepSplitForMemory;
  outcome.flags = flags;
  return outcome;
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

void Trainer::advance(const StepOutcome& outcome) {
  ++state_.step;
  ++state_.step_in_epoch;
  state_.samples_seen += outcome.result.samples;
  if (!outcome.committed) ++state_.skipped_steps;
  if (outcome.committed) {
    last_loss_ = outcome.result.loss;
    parts_.task.committed(state_.step);
  }
  if (state_.step_in_epoch < steps_this_epoch_) return;
  ++state_.epoch;
  state_.step_in_epoch = 0;
  enter_epoch(state_.epoch, 0);
}

void Trainer::one_step() {
  clock_.begin_step();
  device::memory::begin_step();
  std::unique_ptr<OperatorTimer> timer;
  if (state_.step == precision_report_step_) timer = std::make_unique<OperatorTimer>();
  StepOutcome outcome = compute_and_commit();
  if (timer && pass_.precision != Precision::Fp32) say_precision(timer->times());
  timer.reset();
  if (outcome.stopped) return;
  std::optional<std::string> damage;
  if (outcome.committed) {
    const PhaseScope scope(clock_, Phase::Optimiser);
    damage = damaged_after_commit(outcome);
  }
  const CadencePosition position{state_.step + 1, state_.epoch, state_.step_in_epoch + 1, steps_this_epoch_};
  if (outcome.committed && observer_->wants_samples()) {
    std::vector<int64_t> ids;
    for (const task::Batch* batch : step_batches_)
      ids.insert(ids.end(), batch->sample_ids.begin(), batch->sample_ids.end());
    observer_->samples(position.step, position.epoch, ids);
  }
  advance(outcome);
  if (damage) {
    repair(*damage);
    outcome.flags |= measure::kStepRetriedPrecision;
  }
  const CadenceDecision decision = after_step(outcome, position);
  write_row(outcome);
  // After the row, so that a checkpoint never knows of a step the record does not; the time belongs to the next step's
  // Checkpoint phase.
  save_if_due(decision);
  take_snapshot_if_due();
}

}  // namespace redline::train
