// Ceilings by differential runs: what making one part free would gain at most. The doctor says which runs it wants, as
// data; someone who can train (app, tune) makes them, interleaved; the doctor judges the figures.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "doctor/job_view.h"
#include "doctor/observation.h"
#include "measure/statistics.h"

namespace redline::doctor {

enum class ExperimentKind { AsIs, FreeLoader, LoaderOnly, ColdRead, NoLogging, NoValidation, NoMonitor, NoCheckpoint };
const char* experiment_name(ExperimentKind kind);  // "as_is", "free_loader", ...

struct Experiment {
  ExperimentKind kind;
  std::string reason;  // why it is worth running on this job
};
// Always AsIs first. A cadence that does not come at least once in `block_steps` is not worth a run: see
// cadence_ceiling.
std::vector<Experiment> wanted_experiments(const JobView& job, const Observation& seen, int64_t block_steps);

// One interleaved block of one experiment.
struct ExperimentBlock {
  ExperimentKind kind;
  int block = 0;
  double seconds_per_sample = 0;
};

struct Ceiling {
  ExperimentKind kind;
  measure::RatioEstimate speed;  // of the run without that part against the run as it is
  double gain() const { return speed.ratio - 1.0; }
  double gain_at_most() const { return std::max(0.0, speed.interval.high - 1.0); }
  std::string sentence;  // "Even an infinitely fast loader gives at most +3.1 %."
};
// Needs blocks of AsIs; kinds without blocks have no ceiling.
std::vector<Ceiling> ceilings(std::span<const ExperimentBlock> blocks);
// For a cadence too rare for a short run: from the seconds of a few occurrences and how many of them a step holds.
std::optional<Ceiling> cadence_ceiling(ExperimentKind kind, std::span<const double> seconds, double rate,
                                       double step_seconds);
const Ceiling* find_ceiling(std::span<const Ceiling> all, ExperimentKind kind);

}  // namespace redline::doctor
