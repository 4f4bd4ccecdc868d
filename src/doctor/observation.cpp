#include "doctor/observation.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "measure/statistics.h"

namespace redline::doctor {

double Observation::loader_worker_seconds() const {
  return std::accumulate(stage_seconds_per_step.begin(), stage_seconds_per_step.end(), 0.0);
}

namespace {

constexpr double kTimedOften = 0.15;  // of one occurrence of a cadence, where a few were timed
constexpr measure::Phase kCadences[] = {measure::Phase::Log, measure::Phase::Monitor, measure::Phase::Validate,
                                        measure::Phase::Checkpoint};

}  // namespace

double Observation::bare_step_seconds() const {
  double seconds = step_seconds;
  for (const measure::Phase cadence : kCadences) seconds -= phase(cadence).seconds_per_step;
  return std::max(1e-9, seconds);
}

namespace {

bool is_cadence(measure::Phase phase) {
  return std::find(std::begin(kCadences), std::end(kCadences), phase) != std::end(kCadences);
}

// Of a ratio of sums over contiguous blocks, so that one hiccup or a slow minute counts as one piece of evidence and
// not as many.
double share_error_over_blocks(std::span<const measure::StepRow> rows, size_t index, double share) {
  constexpr size_t kBlocks = 10;
  const size_t blocks = std::min(kBlocks, rows.size());
  if (blocks < 2) return share;
  double squares = 0, wall = 0;
  for (size_t b = 0; b < blocks; ++b) {
    double miss = 0;
    for (size_t i = b * rows.size() / blocks; i < (b + 1) * rows.size() / blocks; ++i) {
      const double seconds = static_cast<double>(rows[i].wall_ns) * 1e-9;
      miss += static_cast<double>(rows[i].phase_ns[index]) * 1e-9 - share * seconds;
      wall += seconds;
    }
    squares += miss * miss;
  }
  const auto count = static_cast<double>(blocks);
  return wall > 0 ? std::sqrt(count / (count - 1) * squares) / wall : share;
}

// A cadence comes by the clock or the count: what is not known is what one takes, and how many a stretch of this length
// happened to hold (one more or less at its ends).
double cadence_error(const std::vector<double>& times, double share) {
  constexpr double kEnds = 0.41, kUsualVariation = 0.5;  // of a count that is rounded up or down by chance: 1 / sqrt(6)
  if (times.empty()) return 0;
  const auto count = static_cast<double>(times.size());
  const double mean = std::accumulate(times.begin(), times.end(), 0.0) / count;
  double squares = 0;
  for (const double one : times) squares += (one - mean) * (one - mean);
  const double variation = count >= 3 && mean > 0 ? std::sqrt(squares / (count - 1)) / mean : kUsualVariation;
  return share * std::hypot(variation / std::sqrt(count), kEnds / count);
}

PhaseSummary summarise_phase(std::span<const measure::StepRow> rows, size_t index, double wall_seconds) {
  PhaseSummary summary;
  std::vector<double> times;
  double total = 0;
  for (const auto& row : rows) {
    const double seconds = static_cast<double>(row.phase_ns[index]) * 1e-9;
    total += seconds;
    if (row.phase_ns[index] > 0) times.push_back(seconds);
  }
  summary.seconds_per_step = total / static_cast<double>(rows.size());
  summary.share = wall_seconds > 0 ? total / wall_seconds : 0;
  summary.occurrences = static_cast<int64_t>(times.size());
  if (!times.empty()) summary.seconds_per_occurrence = measure::median(times);
  summary.share_error = is_cadence(static_cast<measure::Phase>(index))
                            ? cadence_error(times, summary.share)
                            : share_error_over_blocks(rows, index, summary.share);
  return summary;
}

}  // namespace

std::optional<CheckpointWrites> checkpoint_writes(const measure::RunRecord& record) {
  CheckpointWrites sum;
  double count = 0;
  const auto number = [](const measure::Event& event, const char* name) {
    const measure::FieldValue* value = event.find(name);
    if (value == nullptr) return 0.0;
    if (const auto* real = std::get_if<double>(value)) return *real;
    if (const auto* whole = std::get_if<int64_t>(value)) return static_cast<double>(*whole);
    return 0.0;
  };
  for (const measure::Event& event : record.events) {
    if (event.kind != "checkpoint.saved" || event.find("sync_seconds") == nullptr) continue;
    count += 1;
    sum.bytes += number(event, "bytes");
    sum.write_seconds += number(event, "write_seconds");
    sum.sync_seconds += number(event, "sync_seconds");
    sum.syncs += number(event, "syncs");
  }
  if (count == 0) return std::nullopt;
  return CheckpointWrites{sum.bytes / count, sum.write_seconds / count, sum.sync_seconds / count, sum.syncs / count};
}

Observation observe(std::span<const measure::StepRow> rows, int64_t warmup_steps, bool computes_padding) {
  Observation seen;
  if (rows.empty()) return seen;
  if (static_cast<int64_t>(rows.size()) > warmup_steps) rows = rows.subspan(static_cast<size_t>(warmup_steps));
  const auto count = static_cast<double>(rows.size());
  double wall = 0, samples = 0, micro = 0, items = 0, padded = 0;
  std::vector<double> walls;
  for (const auto& row : rows) {
    walls.push_back(static_cast<double>(row.wall_ns) * 1e-9);
    wall += walls.back();
    samples += row.samples;
    micro += row.micro_batches;
    items += static_cast<double>(row.items);
    padded += static_cast<double>(row.padded_items);
    seen.peak_bytes = std::max(seen.peak_bytes, row.peak_bytes);
    seen.rss_bytes = std::max(seen.rss_bytes, row.rss_bytes);
    for (size_t s = 0; s < measure::kNumStages; ++s)
      seen.stage_seconds_per_step[s] += static_cast<double>(row.stage_ns[s]) * 1e-9 / count;
  }
  seen.steps = static_cast<int64_t>(rows.size());
  seen.step_seconds = wall / count;
  seen.samples_per_step = samples / count;
  seen.micro_batches_per_step = micro / count;
  if (wall > 0) {
    seen.samples_per_second = samples / wall;
    seen.iterations_per_second = micro / wall;
  }
  seen.padding_share = padded > 0 ? 1.0 - items / padded : 0.0;
  // Of very short steps only some are divided into phases.
  std::vector<measure::StepRow> timed;
  double timed_wall = 0;
  for (const auto& row : rows) {
    if ((row.flags & measure::kStepUntimed) != 0) continue;
    timed.push_back(row);
    timed_wall += static_cast<double>(row.wall_ns) * 1e-9;
  }
  if (timed.empty()) timed.assign(rows.begin(), rows.end()), timed_wall = wall;
  for (size_t p = 0; p < measure::kNumPhases; ++p) seen.phases[p] = summarise_phase(timed, p, timed_wall);
  const auto held = [&](measure::Phase phase, double& once, double& often) {
    once = seen.phase(phase).seconds_per_occurrence;
    often = static_cast<double>(seen.phase(phase).occurrences) / static_cast<double>(timed.size());
  };
  held(measure::Phase::Log, seen.cadence_seconds.log, seen.cadences_per_step.log);
  held(measure::Phase::Monitor, seen.cadence_seconds.monitor, seen.cadences_per_step.monitor);
  held(measure::Phase::Validate, seen.cadence_seconds.validate, seen.cadences_per_step.validate);
  held(measure::Phase::Checkpoint, seen.cadence_seconds.checkpoint, seen.cadences_per_step.checkpoint);
  const double middle = measure::median(walls);
  if (middle > 0) seen.step_spread = (measure::quantile(walls, 0.9) - measure::quantile(walls, 0.1)) / middle;
  seen.costs = fit_costs(timed);
  seen.pieces = fit_pieces(rows, computes_padding);
  seen.reads = fit_reads(rows);
  return seen;
}

namespace {

// Shares and rates after phases have changed.
void refresh(Observation& seen) {
  double seconds = 0;
  for (const PhaseSummary& phase : seen.phases) seconds += phase.seconds_per_step;
  if (seconds <= 0) return;
  seen.step_seconds = seconds;
  for (PhaseSummary& phase : seen.phases) {
    const double share = phase.seconds_per_step / seconds;
    if (phase.share > 0) phase.share_error *= share / phase.share;
    phase.share = share;
  }
  seen.samples_per_second = seen.samples_per_step / seconds;
  seen.iterations_per_second = seen.micro_batches_per_step / seconds;
}

}  // namespace

void price_cadences(Observation& seen, const measure::PerCadence& seconds, const measure::PerCadence& per_step) {
  seen.cadence_seconds = seconds;
  seen.cadences_per_step = per_step;
  const double once[] = {seconds.log, seconds.monitor, seconds.validate, seconds.checkpoint};
  const double often[] = {per_step.log, per_step.monitor, per_step.validate, per_step.checkpoint};
  for (size_t i = 0; i < std::size(kCadences); ++i) {
    PhaseSummary& summary = seen.phases[static_cast<size_t>(kCadences[i])];
    summary.seconds_per_occurrence = once[i];
    summary.seconds_per_step = once[i] * often[i];
    // How often is known now; what one takes was timed a few times.
    const double relative =
        summary.share > 0 ? std::min(summary.share_error / summary.share, kTimedOften) : kTimedOften;
    summary.share = summary.seconds_per_step / std::max(1e-12, seen.step_seconds);
    summary.share_error = relative * summary.share;
  }
  refresh(seen);
}

void subtract_measuring(Observation& seen, double seconds_per_scope) {
  // Per piece: wait, copy, forward, backward; per step: gradients checked, committed, checked again; cadences on top.
  double scopes = 4 * seen.micro_batches_per_step + 3;
  for (const measure::Phase phase : kCadences)
    if (seen.steps > 0) scopes += static_cast<double>(seen.phase(phase).occurrences) / static_cast<double>(seen.steps);
  PhaseSummary& other = seen.phases[static_cast<size_t>(measure::Phase::Other)];
  seen.measuring_seconds = scopes * seconds_per_scope;
  other.seconds_per_step = std::max(0.0, other.seconds_per_step - seen.measuring_seconds);
  refresh(seen);
}

}  // namespace redline::doctor
