#include "train/loop/precision_guard.h"

#include <algorithm>

#include "core/check.h"

namespace redline::train {

PrecisionGuard::PrecisionGuard(const PrecisionGuardSettings& settings) : settings_(settings) {
  if (settings.requested == Precision::Fp16Mixed) ladder_.push_back(Precision::Fp16Mixed);
  if (settings.requested != Precision::Fp32) ladder_.push_back(Precision::Bf16Mixed);
  ladder_.push_back(Precision::Fp32);
}

GuardAction PrecisionGuard::on_non_finite() {
  if (settings_.policy == NonFinitePolicy::Stop) return GuardAction::Stop;
  if (settings_.policy == NonFinitePolicy::Skip)
    return skipped_in_row_ + 1 >= settings_.max_skipped ? GuardAction::Stop : GuardAction::Skip;
  if (level_ + 1 < ladder_.size()) {
    if (level_ == 0) {
      // A loss scale that grows too far every few thousand steps is normal; only failures close together count.
      failures_ = since_return_ < 10 * settings_.clean_steps ? failures_ + 1 : 1;
      stays_ = failures_ >= settings_.give_up_after;
    }
    ++level_;
    clean_ = 0;
    return GuardAction::Rerun;
  }
  // Nothing safer is left. Once more, in case the fault was in the machine and not in the numbers.
  if (repeats_++ == 0) return GuardAction::Rerun;
  repeats_ = 0;
  if (settings_.skip_persistent && skipped_in_row_ + 1 < settings_.max_skipped) return GuardAction::Skip;
  return GuardAction::Stop;
}

bool PrecisionGuard::on_commit() {
  skipped_in_row_ = repeats_ = 0;
  if (level_ == 0) {
    ++since_return_;
    return false;
  }
  if (stays_ || ++clean_ < settings_.clean_steps) return false;
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

std::vector<int64_t> MemoryGuard::pieces(int64_t rows, int64_t cost) const {
  if (limit_ <= 0 || cost <= limit_ || rows <= 1) return {rows};
  const int64_t count = std::min(rows, (cost + limit_ - 1) / limit_);
  std::vector<int64_t> sizes(static_cast<size_t>(count), rows / count);
  for (int64_t i = 0; i < rows % count; ++i) ++sizes[static_cast<size_t>(i)];
  return sizes;
}

bool MemoryGuard::on_out_of_memory(int64_t rows, int64_t cost) {
  REDLINE_CHECK(rows >= 1 && cost >= 1, "a piece that ran out of memory had rows");
  if (rows <= 1) return false;
  // Half the rows, rounded up, at this piece's cost per row: the next try is always strictly smaller.
  const int64_t half = (rows + 1) / 2;
  limit_ = std::max<int64_t>(1, cost * half / rows);
  return true;
}

}  // namespace redline::train
