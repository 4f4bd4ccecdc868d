#include "tune/observe_job.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "core/time.h"
#include "device/memory.h"
#include "measure/statistics.h"
#include "train/training_run.h"
#include "train/trial.h"

namespace redline::tune {

namespace {

constexpr double kObserveShare = 0.08, kLeastSeconds = 1.6;  // of the budget; without one
constexpr int64_t kLeastSteps = 8, kMostObservedSteps = 80;
constexpr int kCastPasses = 6;
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

// The memory is new each time, as it is in a step.
double time_casts(const torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  std::vector<double> seconds;
  for (int pass = 0; pass < kCastPasses; ++pass) {
    const int64_t begin = now_ns();
    std::vector<torch::Tensor> rounded;
    for (const torch::Tensor& weight : module.parameters())
      if (weight.dim() >= 2) rounded.push_back(weight.to(torch::kBFloat16));
    for (const torch::Tensor& weight : rounded) weight.to(torch::kFloat32);
    if (pass > 0) seconds.push_back(seconds_between(begin, now_ns()));  // the first is cold
  }
  return measure::median(seconds);
}

[[noreturn]] void fails_at_once(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const std::string sentence =
      fmt::format("The job fails at its first step, so there is nothing to tune: {}", error.what());
  throw Error(known != nullptr ? known->code() : ExitCode::Failure, sentence);
}

}  // namespace

JobObservation observe_job(const JobSource& jobs, std::optional<double> budget_seconds, int64_t memory_bytes) {
  JobObservation result;
  const int64_t others = device::memory::stats().live_bytes;
  std::unique_ptr<train::Trial> trial;
  double first_step = 0;
  try {
    train::TrialOptions options;
    options.checkpoint = true;
    // Log lines often enough to see what one costs.
    config::RequestSource source = jobs.with({});
    source.overrides.push_back("trainer.log_every_n_steps=2");
    trial = std::make_unique<train::Trial>(jobs.registry, source, jobs.machine, options);
    first_step = time_first_steps(*trial, budget_seconds);
  } catch (const std::exception& error) {
    fails_at_once(error);
  }
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
  const auto steps =
      std::clamp<int64_t>(static_cast<int64_t>(seconds / std::max(1e-6, first_step)), kLeastSteps, kMostObservedSteps);
  const std::vector<measure::StepRow> rows = trial->run(steps).rows;
  Observed& o = result.observed;
  o.seen = doctor::observe(rows, 1);
  fit_micro_batches(rows, trial->task().computes_padding(), o);
  result.cast_seconds = time_casts(trial->task().module());
  o.costs.log = o.seen.phase(measure::Phase::Log).seconds_per_occurrence;
  o.costs.monitor = trial->time_monitor().value_or(0);
  o.costs.validate = trial->time_validation().value_or(0);
  if (budget_seconds && o.costs.validate > kMostValidationShare * *budget_seconds)
    throw ConfigError(fmt::format(
        "A budget of {} is too short: one validation of this job takes {}. Give --budget {} or more, or limit "
        "validations (trainer.limit_val_batches).",
        format_seconds(*budget_seconds), format_seconds(o.costs.validate),
        format_seconds(o.costs.validate / kMostValidationShare)));
  // The first was cold.
  if (o.costs.validate < kLeastSeconds) o.costs.validate = trial->time_validation().value_or(0);
  o.costs.checkpoint = trial->time_checkpoint().value_or(0);
  result.steps_per_epoch = trial->steps_per_epoch();
  train::LoopSettings settings = trial->settings();
  const auto job = train::Job::read(jobs.registry, jobs.with({}), jobs.machine);
  settings.cadence.log_every_n_steps = job->trainer().log_every_n_steps;
  o.rates = cadence_rates(settings, result.steps_per_epoch);
  return result;
}

}  // namespace redline::tune
