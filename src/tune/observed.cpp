// What one observed stretch of a job says beside its phases: the fixed cost of a micro-batch, and cadences worth
// moving.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "measure/statistics.h"
#include "tune/cadence_solver.h"
#include "tune/candidates.h"

namespace redline::tune {

using config::Effect;
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

void fit_micro_batches(std::span<const measure::StepRow> rows, Observed& observed) {
  double items = 0, samples = 0;
  for (const measure::StepRow& row : rows) items += static_cast<double>(row.items), samples += row.samples;
  if (rows.empty()) return;
  observed.items_per_sample = samples > 0 ? items / samples : 0;
  if (const doctor::CostFit fit = doctor::fit_costs(rows); fit.known) {
    observed.micro_batch_seconds = fit.piece_seconds;
    observed.item_seconds = fit.item_seconds;
    observed.padding_seconds = fit.padding_seconds;
    return;
  }
  std::vector<measure::StepRow> sound(rows.begin(), rows.end());
  drop_held_up(sound);
  const PieceLine padded = line_over(sound, &measure::StepRow::padded_items);
  const PieceLine packed = line_over(sound, &measure::StepRow::items);
  const bool packs = packed.misses < padded.misses;
  observed.micro_batch_seconds = packs ? packed.fixed : padded.fixed;
  observed.item_seconds = packs ? packed.per_item : padded.per_item;
  observed.padding_seconds = packs ? 0 : padded.per_item;
}

std::vector<Candidate> cadence_candidates(const JobView& job, const Observed& observed, double share) {
  std::vector<Candidate> out;
  const double cadence = cadence_seconds_per_step(observed.costs, observed.rates);
  const double step = std::max(1e-9, observed.seen.step_seconds);
  const auto one = [&](const char* field, const char* path, double cost, double rate, int64_t from, int64_t to) {
    if (cost <= 0 || rate <= 0 || from <= 0 || to <= from || job.pinned.count(path) != 0) return;
    const double before = step + cadence;
    const double after = before - cost * rate * (1 - static_cast<double>(from) / static_cast<double>(to));
    const double gain = before / after - 1;
    Candidate c{fmt::format("{} {} -> {}", field, from, to),
                {{path, std::to_string(to)}},
                gain,
                gain,
                Effect::Nothing,
                field,
                field,
                std::to_string(from),
                std::to_string(to)};
    out.push_back(std::move(c));
  };
  const auto& c = observed.costs;
  one("log_every_n_steps", "trainer.log_every_n_steps", c.log, observed.rates.log, job.log_every_n_steps,
      std::max<int64_t>(cadence_steps(c.log, step, share), std::min<int64_t>(50, 5 * job.log_every_n_steps)));
  if (job.monitors)
    one("monitor.update_frequency", "model.monitor.update_frequency", c.monitor, observed.rates.monitor,
        job.monitor_every, cadence_steps(c.monitor, step, share));
  if (job.val_check_batches) {
    const int64_t batches = *job.val_check_batches;
    one("val_check_interval", "trainer.val_check_interval", c.validate, observed.rates.validate, batches,
        std::max(2 * batches, job.accumulate * cadence_steps(c.validate, step, share)));
  }
  if (job.save_every_steps)
    one("every_n_train_steps", "exp_manager.checkpoint_callback_params.every_n_train_steps", c.checkpoint,
        observed.rates.checkpoint, *job.save_every_steps, cadence_steps(c.checkpoint, step, share));
  return out;
}

}  // namespace redline::tune
