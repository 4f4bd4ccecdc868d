#include "doctor/rules/shared_memory.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "measure/statistics.h"

namespace redline::doctor {

namespace {

constexpr double kBeside = 0.5, kAlone = 0.2;  // cores that others use
constexpr double kWaits = 0.1;                 // more own waiting than this is about cores, not about memory
constexpr size_t kFewestOfEach = 4;
constexpr double kClearlySlower = 1.05;

double work_in(std::span<const measure::StepRow> rows, const measure::SurroundingsWindow& window) {
  double items = 0, samples = 0;
  for (auto row = std::ranges::lower_bound(rows, window.first_step, {}, &measure::StepRow::step);
       row != rows.end() && row->step <= window.last_step; ++row) {
    items += static_cast<double>(row->items);
    samples += row->samples;
  }
  return items > 0 ? items : samples;
}

// Of a median.
double relative_error(const std::vector<double>& values) {
  constexpr double kMedianAgainstMean = 1.25;  // of normal values: sqrt(pi / 2)
  return kMedianAgainstMean * measure::robust_spread(values) / std::sqrt(static_cast<double>(values.size())) /
         std::max(1e-12, measure::median(values));
}

}  // namespace

SharedMemory fit_shared_memory(std::span<const measure::StepRow> rows,
                               std::span<const measure::SurroundingsWindow> windows) {
  SharedMemory found;
  std::vector<double> beside, alone;  // processor seconds of an item
  double seconds = 0, beside_seconds = 0;
  for (const measure::SurroundingsWindow& w : windows) {
    if (!w.others || w.waited.value_or(0) > kWaits || w.throttled.value_or(0) > 0.02) continue;
    const double work = work_in(rows, w), used = *w.others;
    if (work <= 0) continue;
    seconds += w.seconds;
    if (used >= kBeside) beside_seconds += w.seconds;
    if (used >= kBeside) beside.push_back(w.own * w.seconds / work);
    if (used <= kAlone) alone.push_back(w.own * w.seconds / work);
  }
  if (beside.size() < kFewestOfEach || alone.size() < kFewestOfEach) return found;
  found.slowdown = measure::median(beside) / std::max(1e-12, measure::median(alone));
  found.slowdown_error = found.slowdown * std::hypot(relative_error(beside), relative_error(alone));
  found.beside_share = beside_seconds / seconds;
  found.known = found.slowdown >= kClearlySlower && measure::quantile(beside, 0.3) > measure::quantile(alone, 0.7);
  return found;
}

}  // namespace redline::doctor
