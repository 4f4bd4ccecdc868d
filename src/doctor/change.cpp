#include "doctor/change.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/philox.h"

namespace redline::doctor {

std::string Part::name() const {
  return std::string(is_stage ? measure::stage_name(static_cast<measure::Stage>(index))
                              : measure::phase_name(static_cast<measure::Phase>(index)));
}

namespace {

int64_t part_ns(const measure::StepRow& row, const Part& part) {
  return part.is_stage ? row.stage_ns[part.index] : row.phase_ns[part.index];
}

// Cut at each end: one descheduled step must not look like a change.
constexpr double kCut = 0.2;

double trimmed_mean(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<size_t>(share * static_cast<double>(values.size()));
  double sum = 0;
  for (size_t i = cut; i < values.size() - cut; ++i) sum += values[i];
  return sum / static_cast<double>(values.size() - 2 * cut);
}

measure::Interval bootstrap_interval(const std::vector<double>& values, double cut, double confidence, uint64_t seed) {
  constexpr int kResamples = 400;
  KeyedStream draw(seed, 0, values.size(), 0x646f63);
  std::vector<double> means, resample(values.size());
  for (int r = 0; r < kResamples; ++r) {
    for (double& value : resample)
      value = values[static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(values.size()) - 1))];
    means.push_back(trimmed_mean(resample, cut));
  }
  const double tail = (1.0 - confidence) / 2;
  return {measure::quantile(means, tail), measure::quantile(means, 1.0 - tail)};
}

// Rare parts (validation every 50 steps) are compared per occurrence and scaled by how often they occur: resampling all
// steps would mostly resample how many occurrences there were.
// Stages run ahead of the step that their row belongs to, in bursts: only their sum over the rows means something.
PartChange compare_part(std::span<const measure::StepRow> base, std::span<const measure::StepRow> now, const Part& part,
                        double base_step_seconds, const ChangeOptions& options) {
  std::vector<double> differences;
  for (size_t i = 0; i < base.size(); ++i) {
    const int64_t before = part_ns(base[i], part), after = part_ns(now[i], part);
    if (before > 0 || after > 0) differences.push_back(static_cast<double>(after - before) * 1e-9);
  }
  PartChange change{part, 0, {}, 0};
  if (differences.empty()) return change;
  const double frequency = static_cast<double>(differences.size()) / static_cast<double>(base.size());
  const double cut = part.is_stage ? 0.0 : kCut;
  std::vector<double> copy = differences;
  change.seconds_per_step = trimmed_mean(copy, cut) * frequency;
  const measure::Interval interval =
      bootstrap_interval(differences, cut, options.confidence, options.seed + part.index);
  change.interval = {interval.low * frequency, interval.high * frequency};
  change.share_of_step = base_step_seconds > 0 ? change.seconds_per_step / base_step_seconds : 0;
  return change;
}

bool is_phase(const PartChange& change, measure::Phase phase) {
  return !change.part.is_stage && change.part.index == static_cast<size_t>(phase);
}

bool is_computed(const PartChange& change) {
  return is_phase(change, measure::Phase::Forward) || is_phase(change, measure::Phase::Backward) ||
         is_phase(change, measure::Phase::Optimiser);
}

double mean_seconds(std::span<const measure::StepRow> rows, const Part& part) {
  double ns = 0;
  for (const measure::StepRow& row : rows) ns += static_cast<double>(part_ns(row, part));
  return ns * 1e-9 / static_cast<double>(rows.size());
}

double stage_growth(const std::vector<PartChange>& moved) {
  double seconds = 0;
  for (const PartChange& change : moved)
    if (change.part.is_stage) seconds += change.seconds_per_step;
  return seconds;
}

// How much of itself every computing phase has grown by: what a busier loader takes from cores it shares with training.
// The least of forward and backward, so that a fault in one of them is not taken for it, and no more in all than the
// loader can have taken.
double common_slowdown(std::span<const measure::StepRow> base, const std::vector<PartChange>& parts, double taken) {
  double slowdown = 1e9, computed = 0;
  for (const PartChange& part : parts) {
    const double seconds = is_computed(part) ? mean_seconds(base, part.part) : 0;
    computed += seconds;
    if (seconds > 0 && !is_phase(part, measure::Phase::Optimiser))
      slowdown = std::min(slowdown, part.seconds_per_step / seconds);
  }
  if (computed <= 0 || slowdown > 1e8) return 0;
  return std::clamp(slowdown, 0.0, taken / computed);
}

// When a stage grew: waiting is a symptom, and so is what all computing phases share; a validation reads through the
// same stages.
void separate_symptoms(Change& change, std::span<const measure::StepRow> base, double least) {
  const double taken = stage_growth(change.moved);
  if (taken <= 0) return;
  const double slowdown = common_slowdown(base, change.parts, taken);
  std::vector<PartChange> kept;
  for (PartChange part : change.moved) {
    PartChange symptom = part;
    if (is_phase(part, measure::Phase::Wait))
      part.seconds_per_step = 0;
    else if (is_computed(part))
      part.seconds_per_step -= slowdown * mean_seconds(base, part.part);
    else if (is_phase(part, measure::Phase::Validate) && part.seconds_per_step < 0.3 * taken)
      part.seconds_per_step = 0;
    if (part.seconds_per_step > least) kept.push_back(part);
    symptom.seconds_per_step -= part.seconds_per_step > least ? part.seconds_per_step : 0;
    if (symptom.seconds_per_step > 0) change.symptoms.push_back(symptom);
  }
  std::sort(kept.begin(), kept.end(),
            [](const PartChange& a, const PartChange& b) { return a.seconds_per_step > b.seconds_per_step; });
  change.moved = std::move(kept);
}

// What would go with the culprits: their own seconds on the main thread; of a stage only what the step waits for it or
// loses to it.
double removable_seconds(const Change& change) {
  double seconds = 0;
  for (const PartChange& moved : change.moved)
    if (!moved.part.is_stage) seconds += moved.seconds_per_step;
  for (const PartChange& symptom : change.symptoms) seconds += symptom.seconds_per_step;
  const bool stage =
      std::any_of(change.moved.begin(), change.moved.end(), [](const auto& m) { return m.part.is_stage; });
  const bool waits = std::any_of(change.symptoms.begin(), change.symptoms.end(),
                                 [](const auto& s) { return is_phase(s, measure::Phase::Wait); });
  for (const PartChange& part : change.parts)
    if (stage && !waits && is_phase(part, measure::Phase::Wait)) seconds += std::max(0.0, part.seconds_per_step);
  return seconds;
}

}  // namespace

std::vector<measure::StepRow> best_rows(std::span<const std::vector<measure::StepRow>> passes) {
  REDLINE_CHECK(!passes.empty() && !passes[0].empty(), "there is a pass to take the best of");
  std::vector<measure::StepRow> best = passes[0];
  measure::StageTimes stages;
  stages.fill(std::numeric_limits<int64_t>::max());
  for (const auto& pass : passes) {
    REDLINE_CHECK(pass.size() == best.size(), "passes go over the same steps");
    measure::StageTimes sums{};
    for (size_t i = 0; i < pass.size(); ++i) {
      best[i].wall_ns = std::min(best[i].wall_ns, pass[i].wall_ns);
      for (size_t p = 0; p < measure::kNumPhases; ++p)
        best[i].phase_ns[p] = std::min(best[i].phase_ns[p], pass[i].phase_ns[p]);
      for (size_t s = 0; s < measure::kNumStages; ++s) sums[s] += pass[i].stage_ns[s];
    }
    for (size_t s = 0; s < measure::kNumStages; ++s)
      stages[s] = std::min(stages[s], sums[s] / static_cast<int64_t>(pass.size()));
  }
  for (measure::StepRow& row : best) row.stage_ns = stages;
  return best;
}

Change find_change(std::span<const measure::StepRow> base, std::span<const measure::StepRow> now,
                   const ChangeOptions& options) {
  REDLINE_CHECK(!base.empty() && base.size() == now.size(), "change is found between rows paired by step");
  Change change;
  std::vector<double> base_walls, now_walls;
  for (size_t i = 0; i < base.size(); ++i) {
    base_walls.push_back(static_cast<double>(base[i].wall_ns) * 1e-9);
    now_walls.push_back(static_cast<double>(now[i].wall_ns) * 1e-9);
    change.base_step_seconds += base_walls.back() / static_cast<double>(base.size());
    change.step_seconds += now_walls.back() / static_cast<double>(base.size());
  }
  change.speed = measure::compare_blocks(base_walls, now_walls, 0.95, options.seed);
  for (size_t p = 0; p < measure::kNumPhases; ++p)
    change.parts.push_back(compare_part(base, now, {false, p}, change.base_step_seconds, options));
  for (size_t s = 0; s < measure::kNumStages; ++s)
    change.parts.push_back(compare_part(base, now, {true, s}, change.base_step_seconds, options));
  std::sort(change.parts.begin(), change.parts.end(),
            [](const PartChange& a, const PartChange& b) { return a.seconds_per_step > b.seconds_per_step; });
  const double least = options.least_share * change.base_step_seconds;
  for (const PartChange& part : change.parts)
    if (part.seconds_per_step > least && part.interval.low > 0.4 * least) change.moved.push_back(part);
  separate_symptoms(change, base, least);
  const double remaining = change.step_seconds - removable_seconds(change);
  change.predicted_gain = remaining > 0 ? change.step_seconds / remaining - 1.0 : 0.0;
  return change;
}

bool is_uncertain(const Change& change, const ChangeOptions& options) {
  const double least = options.least_share * change.base_step_seconds;
  for (const PartChange& part : change.parts)
    if (part.interval.low < least && part.interval.high > least) return true;
  return false;
}

}  // namespace redline::doctor
