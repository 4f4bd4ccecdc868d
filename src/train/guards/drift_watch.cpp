#include "train/guards/drift_watch.h"

#include "measure/statistics.h"

namespace redline::train {

namespace {

using measure::Phase;

bool counts_for_drift(size_t phase) {
  switch (static_cast<Phase>(phase)) {
    case Phase::Log:
    case Phase::Monitor:
    case Phase::Validate:
    case Phase::Checkpoint:
      return false;
    default:
      return true;
  }
}

}  // namespace

DriftWatch::Window DriftWatch::summarise() {
  Window window;
  std::vector<double> totals;
  std::array<std::vector<double>, measure::kNumPhases> phases;
  for (const measure::StepRow& row : rows_) {
    const double samples = row.samples > 0 ? row.samples : 1;
    double total = 0;
    for (size_t i = 0; i < measure::kNumPhases; ++i) {
      if (!counts_for_drift(i)) continue;
      const double seconds = static_cast<double>(row.phase_ns[i]) * 1e-9 / samples;
      phases[i].push_back(seconds);
      total += seconds;
    }
    totals.push_back(total);
  }
  window.total = measure::median(totals);
  for (size_t i = 0; i < measure::kNumPhases; ++i)
    if (counts_for_drift(i)) window.phases[i] = measure::median(phases[i]);
  rows_.clear();
  return window;
}

std::optional<DriftReport> DriftWatch::add(const measure::StepRow& row) {
  if (seen_++ < warmup_) return std::nullopt;
  rows_.push_back(row);
  if (static_cast<int64_t>(rows_.size()) < window_) return std::nullopt;
  const Window now = summarise();
  if (!start_) {
    start_ = now;
    return std::nullopt;
  }
  if (start_->total > 0) drift_ = now.total / start_->total - 1;
  slow_in_row_ = now.total > ratio_ * start_->total ? slow_in_row_ + 1 : 0;
  if (slow_in_row_ < 2) return std::nullopt;
  DriftReport report;
  report.ratio = now.total / start_->total;
  report.start_seconds = start_->total;
  report.now_seconds = now.total;
  size_t worst = static_cast<size_t>(Phase::Other);
  for (size_t i = 0; i < measure::kNumPhases; ++i)
    if (now.phases[i] - start_->phases[i] > now.phases[worst] - start_->phases[worst]) worst = i;
  report.phase = static_cast<Phase>(worst);
  report.phase_start_seconds = start_->phases[worst];
  report.phase_now_seconds = now.phases[worst];
  start_ = now;  // the next report is about a further change
  slow_in_row_ = 0;
  return report;
}

}  // namespace redline::train
