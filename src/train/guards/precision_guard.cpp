#include "train/guards/precision_guard.h"

#include <algorithm>

namespace redline::train {

PrecisionGuard::PrecisionGuard(const GuardConfig& config, Precision requested) : config_(config) {
  if (requested == Precision::Fp16Mixed) ladder_.push_back(Precision::Fp16Mixed);
  if (requested != Precision::Fp32) ladder_.push_back(Precision::Bf16Mixed);
  ladder_.push_back(Precision::Fp32);
}

GuardAction PrecisionGuard::on_non_finite() {
  if (config_.non_finite == "stop") return GuardAction::Stop;
  if (config_.non_finite == "skip")
    return skipped_in_row_ + 1 >= config_.max_skipped_steps ? GuardAction::Stop : GuardAction::Skip;
  if (level_ + 1 < ladder_.size()) {
    if (level_ == 0) {
      // A loss scale that grows too far every few thousand steps is normal; only failures close together count.
      failures_ = since_return_ < 10 * config_.clean_steps ? failures_ + 1 : 1;
      stays_ = failures_ >= config_.give_up_after;
    }
    ++level_;
    clean_ = 0;
    return GuardAction::Rerun;
  }
  // Nothing safer is left. Once more, in case the fault was in the machine and not in the numbers.
  if (repeats_++ == 0) return GuardAction::Rerun;
  repeats_ = 0;
  if (config_.persistent == "skip" && skipped_in_row_ + 1 < config_.max_skipped_steps) return GuardAction::Skip;
  return GuardAction::Stop;
}

bool PrecisionGuard::on_commit() {
  skipped_in_row_ = repeats_ = 0;
  if (level_ == 0) {
    ++since_return_;
    return false;
  }
  if (stays_ || ++clean_ < config_.clean_steps) return false;
  level_ = 0;
  clean_ = since_return_ = 0;
  return true;
}

PrecisionGuard::State PrecisionGuard::state() const {
  return {static_cast<int64_t>(level_), clean_, failures_, since_return_, skipped_in_row_, stays_};
}

void PrecisionGuard::restore(const State& state) {
  level_ = static_cast<size_t>(std::clamp<int64_t>(state.level, 0, static_cast<int64_t>(ladder_.size()) - 1));
  clean_ = state.clean;
  failures_ = state.failures;
  since_return_ = state.since_return;
  skipped_in_row_ = state.skipped_in_row;
  stays_ = state.stays && level_ > 0;
}

}  // namespace redline::train
