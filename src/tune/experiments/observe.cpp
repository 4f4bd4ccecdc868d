#include "tune/experiments/observe.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "core/time.h"
#include "device/memory.h"
#include "measure/statistics.h"
#include "measure/step_clock.h"
#include "train/cadences.h"
#include "train/training_run.h"
#include "tune/experiments/gpu_watch.h"

namespace redline::tune {

namespace {

constexpr double kObserveShare = 0.08, kLeastSeconds = 1.6;  // of the budget; without one
constexpr int64_t kLeastSteps = 8, kMostObservedSteps = 80;
constexpr double kStepsOfOneTrial = 96;  // what is observed, one race, its proof and its confirmation
constexpr int kFirstSteps = 5;
constexpr double kFarTooSlow = 4;              // times the budget: no bad moment, nothing to wait for
constexpr double kMostValidationShare = 0.15;  // of the budget: a trial or two look at validations, too

// How long a step takes: the first after a cold one where that is short enough for the budget, else the median of a
// few. A single step that met a bad moment of the machine refuses no job.
double time_first_steps(train::Trial& trial, std::optional<double> budget_seconds) {
  trial.run(1);  // cold
  std::vector<double> seconds;
  while (seconds.size() < kFirstSteps) {
    const auto rows = trial.run(1).rows;
    if (rows.empty()) break;  // stopped
    seconds.push_back(static_cast<double>(rows[0].wall_ns) * 1e-9);
    const double share = budget_seconds ? kStepsOfOneTrial * measure::median(seconds) / *budget_seconds : 0;
    if (seconds.size() % 2 == 1 && (share <= 1 || share > kFarTooSlow)) break;
  }
  return seconds.empty() ? 0 : measure::median(seconds);
}

// The limit holds for training the longest samples, the optimiser's state included. How many of them fit at once; as
// many as the job takes when these do.
int64_t rows_that_fit(train::Trial& trial, int64_t memory_bytes, int64_t others_bytes) {
  const int64_t rows = train::rows_at_once(trial.job());
  if (memory_bytes <= 0) return rows;
  try {
    trial.longest_batch_peak_bytes();  // all that a run has live comes to life
  } catch (const c10::OutOfMemoryError&) {
    trial.task().module().zero_grad(/*set_to_none=*/true);  // not even on this machine: smaller pieces are looked for
  }
  device::memory::set_limit(memory_bytes + others_bytes);
  const std::string limit = format_bytes(static_cast<uint64_t>(memory_bytes));
  const auto fits = [&](int64_t count) {
    bool fit = true;
    try {
      if (count == rows)
        train::longest_batch_peak(trial.job(), trial.task());
      else
        train::longest_batch_peak(trial.job(), trial.task(), count, /*in_pieces=*/true);
    } catch (const c10::OutOfMemoryError&) {
      fit = false;
    }
    trial.task().module().zero_grad(/*set_to_none=*/true);
    return fit;
  };
  int64_t fitting = rows;
  while (!fits(fitting)) {
    if (fitting <= 1)
      throw ConfigError(
          fmt::format("--memory {} is below what a single sample of the longest kind needs, the copy of the state that "
                      "repairs start "
                      "from included; raise it, shorten the samples or use a smaller model.",
                      limit));
    fitting /= 2;
  }
  try {
    trial.time_validation();
  } catch (const c10::OutOfMemoryError&) {
    throw ConfigError(fmt::format(
        "--memory {} does not hold a validation; lower model.validation_ds.batch_size or raise it.", limit));
  }
  return fitting;
}

// Seconds of single occurrences.
std::vector<double> time_occurrences(const LookOptions& options, const std::function<std::optional<double>()>& once) {
  std::vector<double> seconds;
  for (int i = 0; i < options.times; ++i) {
    const auto took = once();
    if (!took) break;
    const bool is_long = *took > options.long_seconds;
    if (i > 0 || is_long || options.times == 1) seconds.push_back(*took);  // the first is warm-up, unless it is long
    if (is_long) break;
  }
  return seconds;
}

double median_or_zero(const std::vector<double>& seconds) { return seconds.empty() ? 0 : measure::median(seconds); }

// Of one log line: the first writes headers, so a few more are waited for where that is cheap.
double log_seconds(train::Trial& trial, const doctor::Observation& seen, int64_t every_steps) {
  constexpr int64_t kLeast = 3;
  constexpr double kMostSeconds = 5;
  const doctor::PhaseSummary& log = seen.phase(measure::Phase::Log);
  if (log.occurrences >= kLeast || kLeast * static_cast<double>(every_steps) * seen.step_seconds > kMostSeconds)
    return log.seconds_per_occurrence;
  std::vector<double> seconds;
  for (const measure::StepRow& row : trial.run(kLeast * every_steps).rows)
    if (const int64_t ns = row.phase_ns[static_cast<size_t>(measure::Phase::Log)]; ns > 0)
      seconds.push_back(static_cast<double>(ns) * 1e-9);
  return seconds.empty() ? log.seconds_per_occurrence : measure::median(seconds);
}

}  // namespace

std::unique_ptr<train::Trial> start_job(const JobSource& jobs, const config::RequestSource& source,
                                        const train::TrialOptions& options, const char* purpose,
                                        const std::function<void(train::Trial&)>& first_steps) {
  try {
    auto trial = std::make_unique<train::Trial>(jobs.registry, source, jobs.machine, options);
    first_steps(*trial);
    return trial;
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    throw Error(known != nullptr ? known->code() : ExitCode::Failure,
                fmt::format("The job fails at its first step, so there is nothing to {}: {}", purpose, error.what()));
  }
}

// A hundred steps rarely hold the right share of validations and checkpoints, so a few of each are timed and counted as
// often as the whole run will have them.
Look look_at(train::Trial& trial, const LookOptions& options) {
  Look look;
  const GpuWatch gpu;
  device::SurroundingsReader around;
  around.watch_stops();
  const device::SurroundingsCounts before = around.read();
  train::TrialResult result = trial.run(options.steps);
  const auto window = measure::window_between(before, around.read());
  if (result.rows.empty()) throw PreemptedError("Stopped before a step was done: there is nothing to look at.");
  look.rows = std::move(result.rows);
  doctor::Observation& seen = look.seen;
  seen = doctor::observe(look.rows, options.warmup_steps, trial.task().computes_padding());
  seen.cores_used = result.cores_used;
  seen.gpu_utilisation = gpu.mean();
  if (window) seen.surroundings = doctor::summarise(std::span(&*window, 1));
  if (seen.surroundings) seen.surroundings->unseen = join(around.unseen(), "; ");
  doctor::subtract_measuring(seen, measure::calibrate_scope_ns() * 1e-9);
  look.monitors = time_occurrences(options, [&] { return trial.time_monitor(); });
  look.validations = time_occurrences(options, [&] { return trial.time_validation(); });
  look.checkpoints = time_occurrences(options, [&] { return trial.time_checkpoint(); });
  const measure::PerCadence seconds{log_seconds(trial, seen, trial.settings().cadence.log_every_n_steps),
                                    median_or_zero(look.monitors), median_or_zero(look.validations),
                                    median_or_zero(look.checkpoints)};
  measure::PerCadence per_step =
      train::cadences_per_step(trial.settings(), trial.steps_per_epoch(), seconds.checkpoint, seen.bare_step_seconds());
  per_step.log = 1.0 / static_cast<double>(std::max<int64_t>(1, options.log_every_n_steps));
  doctor::price_cadences(seen, seconds, per_step);
  return look;
}

ReferenceLook look_at_reference(const JobSource& jobs, std::optional<double> budget_seconds, int64_t memory_bytes) {
  ReferenceLook result;
  const int64_t others = device::memory::stats().live_bytes;
  double first_step = 0;
  train::TrialOptions options;
  options.checkpoint = true;
  // Log lines often enough to see what one costs.
  config::RequestSource source = jobs.with({});
  source.overrides.push_back("trainer.log_every_n_steps=2");
  const auto trial = start_job(jobs, source, options, "tune",
                               [&](train::Trial& started) { first_step = time_first_steps(started, budget_seconds); });
  if (budget_seconds && kStepsOfOneTrial * first_step > *budget_seconds)
    throw ConfigError(fmt::format(
        "A budget of {} is too short: one step of this job takes {}, one trial with its proof about {}. Give --budget "
        "{} or more.",
        format_seconds(*budget_seconds), format_seconds(first_step), format_seconds(kStepsOfOneTrial * first_step),
        format_seconds(4 * kStepsOfOneTrial * first_step)));
  // More than the machine has is no limit.
  const int64_t machine = device::memory::limit();
  result.memory_limit =
      memory_bytes > 0 && machine > 0 ? std::min(memory_bytes, machine) : std::max(memory_bytes, machine);
  if (const int64_t rows = rows_that_fit(*trial, memory_bytes > 0 ? result.memory_limit : 0, others);
      rows != train::rows_at_once(trial->job())) {
    result.rows_that_fit = rows;
    return result;
  }
  const double seconds = budget_seconds ? kObserveShare * *budget_seconds : kLeastSeconds;
  LookOptions look;
  look.steps =
      std::clamp<int64_t>(static_cast<int64_t>(seconds / std::max(1e-6, first_step)), kLeastSteps, kMostObservedSteps);
  look.warmup_steps = 1;
  look.log_every_n_steps = train::Job::read(jobs.registry, jobs.with({}), jobs.machine)->trainer().log_every_n_steps;
  look.times = 2;
  look.long_seconds = kLeastSeconds;
  result.seen = look_at(*trial, look).seen;
  result.steps_per_epoch = trial->steps_per_epoch();
  if (const double validation = result.seen.cadence_seconds.validate;
      budget_seconds && validation > kMostValidationShare * *budget_seconds)
    throw ConfigError(fmt::format(
        "A budget of {} is too short: one validation of this job takes {}. Give --budget {} or more, or limit "
        "validations (trainer.limit_val_batches).",
        format_seconds(*budget_seconds), format_seconds(validation),
        format_seconds(validation / kMostValidationShare)));
  return result;
}

}  // namespace redline::tune
