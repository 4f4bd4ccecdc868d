#include "doctor/ceilings.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/strings.h"

namespace redline::doctor {

const char* experiment_name(ExperimentKind kind) {
  switch (kind) {
    case ExperimentKind::AsIs:
      return "as_is";
    case ExperimentKind::FreeLoader:
      return "free_loader";
    case ExperimentKind::LoaderOnly:
      return "loader_only";
    case ExperimentKind::ColdRead:
      return "cold_read";
    case ExperimentKind::NoLogging:
      return "no_logging";
    case ExperimentKind::NoValidation:
      return "no_validation";
    case ExperimentKind::NoMonitor:
      return "no_monitor";
    case ExperimentKind::NoCheckpoint:
      return "no_checkpoint";
  }
  return "?";
}

std::vector<Experiment> wanted_experiments(const JobView& job, const Observation& seen, int64_t block_steps) {
  std::vector<Experiment> wanted = {
      {ExperimentKind::AsIs, "the job as it is"},
      {ExperimentKind::FreeLoader, "batches fetched beforehand: a loader that costs nothing"},
      {ExperimentKind::LoaderOnly, "no training: what the loader can deliver"}};
  if (job.cache == "none" && seen.stage(measure::Stage::Read) > 0)
    wanted.push_back({ExperimentKind::ColdRead, "files dropped from the page cache: what the disk costs"});
  const auto fires = [&](measure::Phase phase) {
    const PhaseSummary& summary = seen.phase(phase);
    return summary.seconds_per_occurrence > 0 &&
           static_cast<double>(block_steps) * summary.seconds_per_step >= summary.seconds_per_occurrence;
  };
  if (fires(measure::Phase::Log)) wanted.push_back({ExperimentKind::NoLogging, "no log lines, no event files"});
  if (fires(measure::Phase::Validate)) wanted.push_back({ExperimentKind::NoValidation, "no validation"});
  if (fires(measure::Phase::Monitor)) wanted.push_back({ExperimentKind::NoMonitor, "no monitor"});
  if (fires(measure::Phase::Checkpoint)) wanted.push_back({ExperimentKind::NoCheckpoint, "no checkpoints"});
  return wanted;
}

namespace {

constexpr double kNoisy = 0.10;  // an interval wider than this is said
constexpr double kWild = 2.0;    // upper over lower end: beyond it the figures themselves say nothing

std::string ceiling_sentence(ExperimentKind kind, double at_most, double gain) {
  const std::string most = fmt::format("{:+.1f} %", 100 * at_most);
  switch (kind) {
    case ExperimentKind::FreeLoader:
      return fmt::format("Even an infinitely fast loader gives at most {}.", most);
    case ExperimentKind::LoaderOnly:
      return fmt::format("The loader alone runs {:.1f} times as fast as the whole job.", 1 + gain);
    case ExperimentKind::ColdRead:
      return fmt::format("When the data must come from the disk (page cache dropped), speed changes by {:+.1f} %.",
                         100 * gain);
    case ExperimentKind::NoLogging:
      return fmt::format("Even free logging gives at most {}.", most);
    case ExperimentKind::NoValidation:
      return fmt::format("Without any validation the gain is at most {}.", most);
    case ExperimentKind::NoMonitor:
      return fmt::format("Without the monitor the gain is at most {}.", most);
    case ExperimentKind::NoCheckpoint:
      return fmt::format("Without checkpoints the gain is at most {}.", most);
    case ExperimentKind::AsIs:
      break;
  }
  return {};
}

const char* ceiling_subject(ExperimentKind kind) {
  switch (kind) {
    case ExperimentKind::FreeLoader:
      return "an infinitely fast loader";
    case ExperimentKind::ColdRead:
      return "reading from the disk instead of the page cache";
    case ExperimentKind::NoLogging:
      return "free logging";
    case ExperimentKind::NoValidation:
      return "no validation";
    case ExperimentKind::NoMonitor:
      return "no monitor";
    case ExperimentKind::NoCheckpoint:
      return "no checkpoints";
    case ExperimentKind::LoaderOnly:
    case ExperimentKind::AsIs:
      break;
  }
  return "this";
}

}  // namespace

std::vector<Ceiling> ceilings(std::span<const ExperimentBlock> blocks) {
  std::vector<Ceiling> found;
  for (ExperimentKind kind :
       {ExperimentKind::FreeLoader, ExperimentKind::LoaderOnly, ExperimentKind::ColdRead, ExperimentKind::NoLogging,
        ExperimentKind::NoValidation, ExperimentKind::NoMonitor, ExperimentKind::NoCheckpoint}) {
    std::vector<double> as_is, without;
    for (const ExperimentBlock& block : blocks) {
      if (block.kind != kind) continue;
      const auto twin = std::find_if(blocks.begin(), blocks.end(), [&](const ExperimentBlock& other) {
        return other.kind == ExperimentKind::AsIs && other.block == block.block;
      });
      if (twin == blocks.end()) continue;
      as_is.push_back(twin->seconds_per_sample);
      without.push_back(block.seconds_per_sample);
    }
    if (as_is.empty()) continue;
    Ceiling ceiling{kind, measure::compare_blocks(as_is, without), {}};
    ceiling.sentence = ceiling_sentence(kind, ceiling.gain_at_most(), ceiling.gain());
    const measure::Interval& interval = ceiling.speed.interval;
    if (kind != ExperimentKind::LoaderOnly && interval.high - interval.low > kNoisy) {
      const bool wild = interval.high > kWild * std::max(1e-9, interval.low);
      const std::string range =
          wild ? "steps differ by more than that"
               : fmt::format("{:+.0f} to {:+.0f} %", 100 * (interval.low - 1), 100 * (interval.high - 1));
      // A bound that only the noise made is no bound to print.
      ceiling.sentence = wild || (interval.low <= 1 && interval.high >= 1)
                             ? fmt::format("What {} changes is too noisy to say ({}).", ceiling_subject(kind), range)
                             : ceiling.sentence + fmt::format(" (Noisy: {}.)", range);
    }
    found.push_back(std::move(ceiling));
  }
  return found;
}

std::optional<Ceiling> cadence_ceiling(ExperimentKind kind, std::span<const double> seconds, double rate,
                                       double step_seconds) {
  if (seconds.empty() || rate <= 0 || step_seconds <= 0) return std::nullopt;
  const auto ratio = [&](double once) { return step_seconds / std::max(1e-9, step_seconds - rate * once); };
  Ceiling ceiling{kind, {}, {}};
  ceiling.speed.ratio = ratio(measure::median(seconds));
  // Few occurrences: their range is all that is known.
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  const measure::Interval interval =
      seconds.size() >= 5 ? measure::bootstrap_median(seconds) : measure::Interval{*least, *most};
  ceiling.speed.interval = {ratio(std::max(0.0, interval.low)), ratio(interval.high)};
  ceiling.speed.blocks = static_cast<int>(seconds.size());
  ceiling.sentence = ceiling_sentence(kind, ceiling.gain_at_most(), ceiling.gain());
  ceiling.sentence.pop_back();
  ceiling.sentence +=
      fmt::format(" (one takes {}, one in {:.0f} steps).", format_seconds(measure::median(seconds)), 1.0 / rate);
  return ceiling;
}

const Ceiling* find_ceiling(std::span<const Ceiling> all, ExperimentKind kind) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Ceiling& c) { return c.kind == kind; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace redline::doctor
