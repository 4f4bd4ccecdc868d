#include "doctor/rules/read_fit.h"

#include <algorithm>
#include <cmath>

namespace redline::doctor {

namespace {

constexpr size_t kFewestReads = 24, kFarthestAhead = 8;
constexpr double kLeastVariation = 0.08;  // of the items: below, all steps read alike
constexpr double kClearlyGrows = 0.5, kClearlyNot = 0.25;

double items_in(const measure::StepRow& row) { return static_cast<double>(row.items); }
double reading_of(const measure::StepRow& row) {
  return static_cast<double>(row.stage_ns[static_cast<size_t>(measure::Stage::Read)]) * 1e-9;
}

struct ReadingLine {
  double slope = 0, correlation = 0, mean_items = 0, mean_seconds = 0, variation = 0;
};

// Reading of step i against the items of step i + ahead.
ReadingLine reading_line(std::span<const measure::StepRow> rows, size_t ahead) {
  ReadingLine line;
  const size_t count = rows.size() - ahead;
  for (size_t i = 0; i < count; ++i) {
    line.mean_seconds += reading_of(rows[i]) / static_cast<double>(count);
    line.mean_items += items_in(rows[i + ahead]) / static_cast<double>(count);
  }
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < count; ++i) {
    const double x = items_in(rows[i + ahead]) - line.mean_items, y = reading_of(rows[i]) - line.mean_seconds;
    xx += x * x, yy += y * y, xy += x * y;
  }
  if (xx <= 0 || yy <= 0 || line.mean_items <= 0) return line;
  line.slope = xy / xx;
  line.correlation = xy / std::sqrt(xx * yy);
  line.variation = std::sqrt(xx / static_cast<double>(count)) / line.mean_items;
  return line;
}

}  // namespace

ReadFit fit_reads(std::span<const measure::StepRow> rows) {
  ReadFit fit;
  if (rows.size() < kFewestReads + kFarthestAhead) return fit;
  ReadingLine best;
  for (size_t ahead = 0; ahead <= kFarthestAhead; ++ahead)
    if (const ReadingLine line = reading_line(rows, ahead); ahead == 0 || line.correlation > best.correlation)
      best = line;
  if (best.variation < kLeastVariation || best.mean_seconds <= 0) return fit;
  fit.correlation = best.correlation;
  fit.grows = std::clamp(best.slope * best.mean_items / best.mean_seconds, 0.0, 1.0);
  fit.known = best.correlation >= kClearlyGrows || best.correlation <= kClearlyNot;
  if (best.correlation <= kClearlyNot) fit.grows = 0;
  return fit;
}

}  // namespace redline::doctor
