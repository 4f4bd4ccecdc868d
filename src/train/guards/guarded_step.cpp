#include "train/guards/guarded_step.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "device/memory.h"
#include "train/guards/non_finite.h"
#include "train/step/batches.h"

namespace redline::train {

namespace {

constexpr int64_t kMostEmptySteps = 100;

}  // namespace

void GuardedStep::on_out_of_memory(const StepVerdict& step) {
  const auto stats = device::memory::stats();
  const int64_t number = state_.at.step + 1;
  const std::string budget =
      fmt::format("live tensor memory {}, limit {}", format_bytes(static_cast<uint64_t>(stats.live_bytes)),
                  device::memory::limit() > 0 ? format_bytes(static_cast<uint64_t>(device::memory::limit())) : "none");
  if (!settings_.guards.out_of_memory)
    throw OutOfMemoryError(
        fmt::format("Step {} ran out of memory ({}): {} Lower the batch size or raise trainer.memory_limit.", number,
                    budget, step.problem));
  // Before any piece ran there is nothing to split: the whole micro-batch is what did not fit.
  const int64_t rows = engine_.piece_rows() > 0    ? engine_.piece_rows()
                       : engine_.batches().empty() ? 1
                                                   : engine_.batches().back()->size();
  const int64_t cost = engine_.piece_cost() > 0 ? engine_.piece_cost() : rows;
  // Where another rank had too little, this one only cuts smaller too.
  const bool other = !parts_.agreement->alone() && step.problem.empty();
  const bool stuck = !state_.memory.on_out_of_memory(rows, cost) && !other;
  // Ranks give their copies back together: when the next is due is something that they ask each other by.
  if (parts_.agreement->any(stuck)) {
    if (replay_.give_back()) return;
    if (stuck)
      throw OutOfMemoryError(
          fmt::format("Step {}: one sample does not fit in memory ({}). Shorten the samples (max_duration, "
                      "max_sequence_length), use a smaller "
                      "model, or raise trainer.memory_limit.",
                      number, budget));
  }
  ++state_.at.guard_actions;
  parts_.event("guard.out_of_memory", {{"step", number},
                                       {"rows", rows},
                                       {"piece_cost", state_.memory.limit()},
                                       {"live_bytes", stats.live_bytes},
                                       {"limit_bytes", device::memory::limit()},
                                       {"changes_batch_statistics", parts_.task.batch_statistics()}});
  log_warning(fmt::format(
      "Step {} ran out of memory with {} samples at once ({}); running the same samples in smaller pieces, the "
      "effective batch stays.{}",
      number, rows, budget,
      parts_.task.batch_statistics() ? " This model's BatchNorm now sees smaller batches, which changes its statistics."
                                     : ""));
}

void GuardedStep::on_empty() {
  if (++empty_in_row_ == 1 || empty_in_row_ == kMostEmptySteps)
    parts_.event("step.empty", {{"step", state_.at.step + 1}});
  if (empty_in_row_ >= kMostEmptySteps)
    throw DataError(
        fmt::format("The last {} steps had nothing to learn from: the task's loss has weight 0 for all their samples.",
                    kMostEmptySteps));
  log_warning_once(
      "A step had nothing to learn from (the loss has weight 0 for all its samples); such steps are skipped and "
      "counted.");
}

GuardAction GuardedStep::on_non_finite(const StepVerdict& step) {
  const StepPass& pass = engine_.pass();
  const bool loss_finite = std::isfinite(step.loss()), half = pass.precision == Precision::Fp16Mixed;
  engine_.forget_gradients();
  const NonFiniteReport report = explain_non_finite(parts_.task, *state_.optimizer, settings_.device,
                                                    {engine_.batches(), pass, loss_finite, step.problem});
  if (half) state_.scaler.update(true);
  const GuardAction action = state_.precision.on_non_finite();
  ++state_.at.guard_actions;
  const char* failed = precision_name(pass.precision);
  const char* next = action == GuardAction::Rerun  ? precision_name(state_.precision.precision())
                     : action == GuardAction::Skip ? "skip"
                                                   : "stop";
  parts_.event("guard.non_finite", {{"step", state_.at.step + 1},
                                    {"precision", std::string(failed)},
                                    {"tensor", report.tensor},
                                    {"samples", sample_ids_text(report.samples, 64)},
                                    {"loss", fmt::format("{}", step.loss())},
                                    {"grad_norm", fmt::format("{}", step.grad_norm)},
                                    {"loss_scale", pass.loss_scale},
                                    {"action", std::string(next)},
                                    {"stays", state_.precision.stays()}});
  std::string cause;
  if (half && loss_finite)
    cause = fmt::format(
        " The gradients overflowed at loss scale {}, which calls for a lower scale{}.", pass.loss_scale,
        state_.scaler.dynamic() ? fmt::format(" (now {})", state_.scaler.scale()) : "; set trainer.amp.loss_scale");
  const std::string what = fmt::format("not finite in {}: first in {} (samples {}).", failed, report.tensor,
                                       sample_ids_text(report.samples));
  if (action == GuardAction::Rerun)
    log_warning(fmt::format("Step {} was {}{} Running the same samples in {}{}.", state_.at.step + 1, what, cause, next,
                            state_.precision.stays() ? ", and staying there" : ""));
  else if (action == GuardAction::Skip)
    log_warning(fmt::format("Step {} was {}{} The step is skipped.", state_.at.step + 1, what, cause));
  else
    diverge_(fmt::format("Step {} is {}", state_.at.step + 1, what));
  return action;
}

void GuardedStep::on_commit() {
  empty_in_row_ = 0;
  if (engine_.pass().precision == Precision::Fp16Mixed) state_.scaler.update(false);
  if (!state_.precision.on_commit()) return;
  const char* name = precision_name(state_.precision.precision());
  parts_.event("guard.precision_return", {{"step", state_.at.step + 1}, {"precision", std::string(name)}});
  log_info(fmt::format("Back to precision {} from step {} on.", name, state_.at.step + 2));
}

StepVerdict GuardedStep::make() {
  const auto stop = [&] { return !replay_.running() && parts_.agreement->stop_signal() != 0; };
  engine_.begin_step();
  uint32_t flags = 0;
  while (true) {
    const Precision precision = state_.precision.precision();
    StepVerdict step =
        engine_.attempt({settings_.seed, state_.at.step, precision,
                         precision == Precision::Fp16Mixed ? state_.scaler.scale() : 1.0, /*expected_pieces=*/1},
                        state_.memory, stop);
    step.learning_rate = settings_.schedule.at(state_.at.step);
    if (step.stop || step.damaged_before) return step;
    if (step.out_of_memory) {
      on_out_of_memory(step);
      flags |= measure::kStepSplitForMemory;
      continue;
    }
    if (step.weight == 0.0) {
      on_empty();
      flags |= measure::kStepSkipped;
    } else if (step.finite) {
      engine_.commit(step, state_.at.step);
      on_commit();
    } else if (on_non_finite(step) == GuardAction::Skip) {
      state_.precision.on_skip();
      flags |= measure::kStepSkipped;
    } else {
      flags |= measure::kStepRetriedPrecision;
      continue;
    }
    if (state_.memory.limit() > 0 && step.pieces > engine_.num_micro_batches()) flags |= measure::kStepSplitForMemory;
    step.flags = flags;
    return step;
  }
}

std::optional<std::string> GuardedStep::damage(const StepVerdict& step, bool now) {
  if (!step.committed || !settings_.guards.check_weights) return std::nullopt;
  std::optional<std::string> damage;
  if (!step.weights_finite || !settings_.device.is_cpu()) damage = state_.first_damage();
  if (!now && !parts_.agreement->alone()) {
    pending_ = damage;
    parts_.agreement->tell_damage(damage.has_value());
    return std::nullopt;
  }
  if (!parts_.agreement->any(damage.has_value())) return std::nullopt;
  return damage.value_or("a weight of another rank");
}

std::string GuardedStep::late_damage() {
  return std::exchange(pending_, std::nullopt).value_or("a weight of another rank");
}

}  // namespace redline::train
