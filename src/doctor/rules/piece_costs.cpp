#include "doctor/rules/piece_costs.h"

#include <algorithm>
#include <cmath>

#include "doctor/rules/cost_fit.h"
#include "measure/statistics.h"

namespace redline::doctor {

using measure::Phase;

namespace {

struct Piece {
  double items, seconds;
};
double piece_seconds(const measure::StepRow& row) {
  const int64_t ns =
      row.phase_ns[static_cast<size_t>(Phase::Forward)] + row.phase_ns[static_cast<size_t>(Phase::Backward)];
  return 1e-9 * static_cast<double>(ns) / std::max(1, row.micro_batches);
}
struct PieceLine {
  double fixed = 0, per_item = 0, misses = 0;  // misses: sum of squares
};

PieceLine line_through(const std::vector<Piece>& pieces) {
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (const auto& [x, y] : pieces) sx += x, sy += y, sxx += x * x, sxy += x * y;
  const auto n = static_cast<double>(pieces.size());
  const double spread = n * sxx - sx * sx;
  const bool enough = n >= 5 && spread > 1e-4 * sx * sx;
  const double most = sx > 0 ? sy / sx : 0;  // all of it per item
  PieceLine line;
  line.per_item = enough ? std::clamp((n * sxy - sx * sy) / spread, 0.05 * most, most) : most;
  line.fixed = n > 0 ? std::max(0.0, (sy - line.per_item * sx) / n) : 0;
  for (const auto& [x, y] : pieces) line.misses += std::pow(y - line.fixed - line.per_item * x, 2);
  return line;
}

// Steps that took far longer than the line through the medians of the shorter and the longer half says.
void drop_held_up(std::vector<measure::StepRow>& rows) {
  const auto items = [](const measure::StepRow& row) {
    return static_cast<double>(row.padded_items) / std::max(1, row.micro_batches);
  };
  std::vector<double> x, y, parts[2], seconds[2];
  for (const measure::StepRow& row : rows) x.push_back(items(row)), y.push_back(piece_seconds(row));
  const double edge = 0.5 * (*std::min_element(x.begin(), x.end()) + *std::max_element(x.begin(), x.end()));
  for (size_t i = 0; i < x.size(); ++i) parts[x[i] > edge].push_back(x[i]), seconds[x[i] > edge].push_back(y[i]);
  if (parts[0].empty() || parts[1].empty()) return;
  const double x0 = measure::median(parts[0]), y0 = measure::median(seconds[0]);
  const double slope = (measure::median(seconds[1]) - y0) / (measure::median(parts[1]) - x0);
  for (size_t i = 0; i < y.size(); ++i) y[i] /= std::max(1e-12, y0 + slope * (x[i] - x0));
  const double most = measure::median(y) + std::max(0.02, 4 * measure::robust_spread(y));
  size_t kept = 0;
  for (size_t i = 0; i < rows.size(); ++i)
    if (y[i] <= most) rows[kept++] = rows[i];
  rows.resize(kept);
}

PieceLine line_over(const std::vector<measure::StepRow>& rows, int64_t measure::StepRow::*items) {
  std::vector<Piece> pieces;
  for (const measure::StepRow& row : rows)
    pieces.push_back({static_cast<double>(row.*items) / std::max(1, row.micro_batches), piece_seconds(row)});
  return line_through(pieces);
}

}  // namespace

PieceCosts fit_pieces(std::span<const measure::StepRow> rows, bool computes_padding) {
  PieceCosts costs;
  double items = 0, samples = 0;
  for (const measure::StepRow& row : rows) items += static_cast<double>(row.items), samples += row.samples;
  if (rows.empty()) return costs;
  costs.items_per_sample = samples > 0 ? items / samples : 0;
  std::vector<measure::StepRow> sound;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(sound),
               [](const measure::StepRow& row) { return (row.flags & measure::kStepUntimed) == 0; });
  if (sound.empty()) return costs;
  if (const CostFit fit = fit_costs(sound); fit.known && fit.saw_padding && computes_padding) {
    costs.piece_seconds = fit.piece_seconds;
    costs.item_seconds = fit.item_seconds;
    costs.padding_seconds = fit.padding_seconds;
    return costs;
  }
  drop_held_up(sound);
  const PieceLine padded = line_over(sound, &measure::StepRow::padded_items);
  const PieceLine packed = line_over(sound, &measure::StepRow::items);
  const bool packs = !computes_padding || packed.misses < padded.misses;
  costs.piece_seconds = packs ? packed.fixed : padded.fixed;
  costs.item_seconds = packs ? packed.per_item : padded.per_item;
  costs.padding_seconds = packs ? 0 : padded.per_item;
  return costs;
}

void anchor_pieces(const SampleCost& reference, const SampleCost& larger, const std::optional<SampleCost>& bucketed,
                   PieceCosts& costs) {
  if (larger.seconds <= 0 || reference.seconds <= 0) return;
  const double beside = costs.item_seconds > 0 ? std::clamp(costs.padding_seconds / costs.item_seconds, 0.0, 1.0) : 1.0;
  // What padding costs is subtracted, or goes with the items.
  double of_padding = 0, weight = beside;
  if (bucketed && larger.padding - bucketed->padding > 0.05 * larger.items) {
    of_padding = (larger.seconds - bucketed->seconds) / (larger.padding - bucketed->padding);
    of_padding = std::clamp(of_padding, 0.0, larger.seconds / (larger.items + larger.padding));
    weight = 0;
  }
  const double y0 = reference.seconds - of_padding * reference.padding,
               y1 = larger.seconds - of_padding * larger.padding;
  const double x0 = reference.items + weight * reference.padding, x1 = larger.items + weight * larger.padding;
  const double apart = reference.pieces * x1 - larger.pieces * x0;
  if (apart <= 0.05 * reference.pieces * x1) return;
  const double item = (reference.pieces * y1 - larger.pieces * y0) / apart;
  if (item <= 0) return;
  // Below zero where larger pieces are slower, as when they fall out of a cache: that is kept.
  costs.piece_seconds = (y0 * x1 - y1 * x0) / apart;
  costs.item_seconds = item;
  costs.padding_seconds = weight > 0 ? weight * item : of_padding;
}

double parallel_share(double job_seconds, double other_seconds, double apart, int job_threads, int other_threads) {
  const bool fewer = other_threads < job_threads;
  const double few = (fewer ? other_seconds : job_seconds) - apart;
  const double many = (fewer ? job_seconds : other_seconds) - apart;
  const double few_threads = std::min(job_threads, other_threads), many_threads = std::max(job_threads, other_threads);
  if (few <= 0 || many <= 0) return 0;
  // many / few = (1 - s + s / many_threads) / (1 - s + s / few_threads)
  const double q = many / few;
  return std::clamp((1 - q) / (1 - 1 / many_threads - q * (1 - 1 / few_threads)), -1.0, 1.0);
}

}  // namespace redline::doctor
