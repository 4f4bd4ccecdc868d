#include "doctor/change.h"

#include <algorithm>
#include <cmath>

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

// Mean of the middle: a fifth is cut at each end, since one descheduled step must not look like a change.
double trimmed_mean(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  const size_t cut = values.size() / 5;
  double sum = 0;
  for (size_t i = cut; i < values.size() - cut; ++i) sum += values[i];
  return sum / static_cast<double>(values.size() - 2 * cut);
}

measure::Interval bootstrap_interval(const std::vector<double>& values, double confidence, uint64_t seed) {
  constexpr int kResamples = 400;
  KeyedStream draw(seed, 0, values.size(), 0x646f63);
  std::vector<double> means, resample(values.size());
  for (int r = 0; r < kResamples; ++r) {
    for (double& value : resample)
      value = values[static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(values.size()) - 1))];
    means.push_back(trimmed_mean(resample));
  }
  const double tail = (1.0 - confidence) / 2;
  return {measure::quantile(means, tail), measure::quantile(means, 1.0 - tail)};
}

// Rare parts (validation every 50 steps) are compared per occurrence and scaled by how often they occur: resampling all
// steps would mostly resample how many occurrences there were.
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
  std::vector<double> copy = differences;
  change.seconds_per_step = trimmed_mean(copy) * frequency;
  const measure::Interval interval = bootstrap_interval(differences, options.confidence, options.seed + part.index);
  change.interval = {interval.low * frequency, interval.high * frequency};
  change.share_of_step = base_step_seconds > 0 ? change.seconds_per_step / base_step_seconds : 0;
  return change;
}

bool is_phase(const PartChange& change, measure::Phase phase) {
  return !change.part.is_stage && change.part.index == static_cast<size_t>(phase);
}

// Waiting is a symptom when a loader stage grew: the stage is the cause.
void drop_explained_wait(std::vector<PartChange>& moved) {
  const bool stage_moved = std::any_of(moved.begin(), moved.end(), [](const PartChange& c) { return c.part.is_stage; });
  if (stage_moved) std::erase_if(moved, [](const PartChange& c) { return is_phase(c, measure::Phase::Wait); });
}

double removable_seconds(const Change& change) {
  double seconds = 0;
  bool loader = false;
  for (const PartChange& moved : change.moved) {
    if (moved.part.is_stage || is_phase(moved, measure::Phase::Wait))
      loader = true;
    else
      seconds += moved.seconds_per_step;
  }
  if (loader) {
    // The loader's growth costs the step only what the step waits for.
    for (const PartChange& part : change.parts)
      if (is_phase(part, measure::Phase::Wait)) seconds += std::max(0.0, part.seconds_per_step);
  }
  return seconds;
}

}  // namespace

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
  drop_explained_wait(change.moved);
  const double remaining = change.step_seconds - removable_seconds(change);
  change.predicted_gain = remaining > 0 ? change.step_seconds / remaining - 1.0 : 0.0;
  return change;
}

}  // namespace redline::doctor
