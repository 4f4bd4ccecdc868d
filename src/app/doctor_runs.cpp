#include "app/doctor_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/cold_files.h"
#include "app/gpu_watch.h"
#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "measure/step_clock.h"
#include "train/checkpoint/interval.h"

namespace redline::app {

namespace {

constexpr int64_t kWarmup = 3;  // steps: first touches and allocator growth

train::TrialOptions options_for(doctor::ExperimentKind kind) {
  train::TrialOptions options;
  options.free_loader = kind == doctor::ExperimentKind::FreeLoader;
  options.loader_only = kind == doctor::ExperimentKind::LoaderOnly;
  options.log = kind != doctor::ExperimentKind::NoLogging;
  options.validate = kind != doctor::ExperimentKind::NoValidation;
  options.monitor = kind != doctor::ExperimentKind::NoMonitor;
  options.checkpoint = kind != doctor::ExperimentKind::NoCheckpoint;
  return options;
}

[[noreturn]] void fails_at_once(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  throw Error(known != nullptr ? known->code() : ExitCode::Failure,
              fmt::format("The job fails in its first steps, so there is nothing to diagnose: {}", error.what()));
}

int64_t every_steps(double rate) { return rate > 0 ? static_cast<int64_t>(std::lround(1.0 / rate)) : 0; }

}  // namespace

DoctorRuns::DoctorRuns(const task::Registry& registry, const config::RequestSource& source, const MachineFacts& machine,
                       const std::filesystem::path& scratch)
    : machine_(machine) {
  // Mistakes in the job's text are about the job, not about its first step.
  train::Job::read(registry, source, machine);
  try {
    train::TrialOptions options = options_for(doctor::ExperimentKind::AsIs);
    options.scratch = scratch;
    trial_ = std::make_unique<train::Trial>(registry, source, machine, options);
    trial_->run(kWarmup);
  } catch (const std::exception& error) {
    fails_at_once(error);
  }
  start_ = trial_->state();
  rates_ = tune::cadence_rates(trial_->settings(), trial_->steps_per_epoch());
}

DoctorRuns::Watched DoctorRuns::observe(int64_t steps) {
  log_info(fmt::format("Observing {} steps ...", steps));
  Watched watched;
  const GpuWatch gpu;
  train::TrialResult result = trial_->run(steps);
  watched.rows = std::move(result.rows);
  if (watched.rows.empty()) throw PreemptedError("Stopped before a step was done: there is nothing to diagnose.");
  if (static_cast<int64_t>(watched.rows.size()) < steps)
    log_warning(fmt::format("Only {} of {} steps were made; what follows rests on those.", watched.rows.size(), steps));
  watched.seen = doctor::observe(watched.rows);
  watched.seen.cores_used = result.cores_used;
  watched.seen.gpu_utilisation = gpu.mean();
  doctor::subtract_measuring(watched.seen, measure::calibrate_scope_ns() * 1e-9);
  price_cadences(watched.seen);
  return watched;
}

// Of one log line: the first writes headers, so a few more are waited for where that is cheap.
double DoctorRuns::log_seconds(const doctor::Observation& seen) {
  constexpr int64_t kLeast = 3;
  constexpr double kMostSeconds = 5;
  const doctor::PhaseSummary& log = seen.phase(measure::Phase::Log);
  const int64_t period = every_steps(rates_.log);
  if (log.occurrences >= kLeast || period == 0 ||
      kLeast * static_cast<double>(period) * seen.step_seconds > kMostSeconds)
    return log.seconds_per_occurrence;
  std::vector<double> seconds;
  for (const measure::StepRow& row : trial_->run(kLeast * period).rows)
    if (const int64_t ns = row.phase_ns[static_cast<size_t>(measure::Phase::Log)]; ns > 0)
      seconds.push_back(static_cast<double>(ns) * 1e-9);
  return seconds.empty() ? log.seconds_per_occurrence : measure::median(seconds);
}

// A hundred steps rarely hold the right share of validations and checkpoints, so one of each is timed and counted as
// often as the whole run will have it.
void DoctorRuns::price_cadences(doctor::Observation& seen) {
  using measure::Phase;
  const auto timed = [&](std::vector<double>& seconds, const auto& once) {
    for (int i = 0; i < 3; ++i) {
      const auto took = once();
      if (!took) return;
      if (i > 0 || *took > 2.0) seconds.push_back(*took);  // the first is warm-up, unless it is long
      if (*took > 2.0) return;
    }
  };
  timed(validations_, [&] { return trial_->time_validation(); });
  timed(monitors_, [&] { return trial_->time_monitor(); });
  timed(checkpoints_, [&] { return trial_->time_checkpoint(); });
  const auto price = [&](Phase phase, const std::vector<double>& seconds, double rate) {
    if (!seconds.empty()) doctor::amortise(seen, phase, measure::median(seconds), rate);
  };
  price(Phase::Validate, validations_, rates_.validate);
  price(Phase::Monitor, monitors_, rates_.monitor);
  doctor::amortise(seen, Phase::Log, log_seconds(seen), rates_.log);
  const train::IntervalPolicy& policy = trial_->settings().save_interval;
  if (!policy.every_steps && !checkpoints_.empty()) {
    train::IntervalInput input;
    input.stall_seconds = measure::median(checkpoints_);  // what training loses, the writer's share included
    const double interval = policy.every_seconds.value_or(train::automatic_interval_seconds(policy, input));
    if (interval > 0) rates_.checkpoint += seen.step_seconds / interval;
  }
  price(Phase::Checkpoint, checkpoints_, rates_.checkpoint);
}

double DoctorRuns::run_block(doctor::ExperimentKind kind, int64_t steps) {
  trial_->vary(options_for(kind));
  if (kind == doctor::ExperimentKind::ColdRead) drop_from_page_cache(files_);
  trial_->load(start_);
  const std::vector<measure::StepRow> rows = trial_->run(steps + 1).rows;
  double seconds = 0, samples = 0;
  for (size_t i = 1; i < rows.size(); ++i) {  // the first waits for a loader that starts anew
    seconds += static_cast<double>(rows[i].wall_ns) * 1e-9;
    samples += rows[i].samples;
  }
  return samples > 0 ? seconds / samples : 0;
}

std::vector<doctor::Ceiling> DoctorRuns::ceilings(const doctor::Observation& seen, int blocks, double seconds) {
  using doctor::ExperimentKind;
  if (blocks <= 0) return {};
  const int64_t epoch = std::max<int64_t>(2, trial_->steps_per_epoch() - kWarmup - 1);
  const auto affordable = static_cast<int64_t>(seconds / (4.0 * blocks * std::max(1e-6, seen.step_seconds)));
  const int64_t steps = std::min(epoch, std::clamp<int64_t>(affordable, 4, 40));
  auto wanted = doctor::wanted_experiments(settings(), seen, steps);
  files_ = data_files(trial_->job().train_ds());
  if (files_.empty()) std::erase_if(wanted, [](const auto& e) { return e.kind == ExperimentKind::ColdRead; });
  log_info(fmt::format("Ceilings: {} conditions, {} blocks of {} steps each ...", wanted.size(), blocks, steps));
  std::vector<doctor::ExperimentBlock> measured;
  for (int block = 0; block < blocks; ++block)
    for (size_t i = 0; i < wanted.size(); ++i) {
      // Forward, then backward, so that drift of the machine cancels.
      const auto kind = wanted[block % 2 == 0 ? i : wanted.size() - 1 - i].kind;
      const double cost = run_block(kind, steps);
      if (cost > 0) measured.push_back({kind, block, cost});
    }
  trial_->vary(options_for(ExperimentKind::AsIs));
  std::vector<doctor::Ceiling> found = doctor::ceilings(measured);
  const auto add_rare = [&](ExperimentKind kind, const std::vector<double>& occurrences, double rate) {
    if (doctor::find_ceiling(found, kind) != nullptr) return;
    if (auto ceiling = doctor::cadence_ceiling(kind, occurrences, rate, seen.step_seconds))
      found.push_back(std::move(*ceiling));
  };
  add_rare(ExperimentKind::NoLogging, {seen.phase(measure::Phase::Log).seconds_per_occurrence}, rates_.log);
  add_rare(ExperimentKind::NoValidation, validations_, rates_.validate);
  add_rare(ExperimentKind::NoMonitor, monitors_, rates_.monitor);
  add_rare(ExperimentKind::NoCheckpoint, checkpoints_, rates_.checkpoint);
  return found;
}

std::vector<report::OperatorLine> DoctorRuns::operators() {
  trial_->run_operators();  // once for warm-up
  const auto times = trial_->run_operators();
  // A peak is at least what was reached: on a busy machine the short probe can fall far below the operators themselves.
  double total = 0, reached = 0;
  for (const auto& time : times) {
    total += time.self_seconds;
    if (time.self_seconds > 0) reached = std::max(reached, time.flops / time.self_seconds / 1e9);
  }
  std::vector<report::OperatorLine> lines;
  for (const auto& time : times) {
    report::OperatorLine line{train::operator_words(time.name), time.calls, time.self_seconds,
                              total > 0 ? time.self_seconds / total : 0, -1};
    const double probed = time.dtype == torch::kBFloat16  ? machine_.gemm_bf16_gflops
                          : time.dtype == torch::kFloat16 ? machine_.gemm_fp16_gflops
                                                          : machine_.gemm_fp32_gflops;
    if (time.flops > 0 && probed > 0 && time.self_seconds > 0)
      line.share_of_peak = time.flops / time.self_seconds / (std::max(probed, reached) * 1e9);
    lines.push_back(std::move(line));
  }
  return lines;
}

namespace {

// The rules' settings, from whatever knows values by path.
template <class IntOf, class TextOf>
doctor::Settings read_settings(const IntOf& number, const TextOf& text) {
  doctor::Settings settings;
  settings.num_workers = static_cast<int>(number("model.train_ds.num_workers", 0));
  settings.prefetch_factor = static_cast<int>(number("model.train_ds.prefetch_factor", 2));
  settings.intra_op_threads = static_cast<int>(number("trainer.intra_op_threads", 0));
  settings.batch_size = number("model.train_ds.batch_size", 0);
  settings.micro_batch_size = number("model.train_ds.micro_batch_size", 0);
  settings.accumulate_grad_batches = number("trainer.accumulate_grad_batches", 1);
  settings.precision = text("trainer.precision");
  settings.log_every_n_steps = number("trainer.log_every_n_steps", 50);
  settings.buckets = number("model.train_ds.num_buckets", 1) > 1 || text("model.train_ds.use_bucketing") == "true";
  const std::string cache = text("model.train_ds.cache");
  settings.cache = !cache.empty() && cache != "none";
  return settings;
}

}  // namespace

doctor::Settings DoctorRuns::settings() const {
  const config::Resolved& resolved = trial_->job().resolved();
  doctor::Settings settings = read_settings(
      [&](const char* path, int64_t fallback) {
        const auto* value = resolved.find(path);
        return value != nullptr ? value->value.as_int().value_or(fallback) : fallback;
      },
      [&](const char* path) {
        const auto* value = resolved.find(path);
        return value != nullptr && value->value.is_scalar() ? value->value.text() : std::string();
      });
  settings.validate_every_steps = every_steps(rates_.validate);
  settings.monitor_option = trial_->job().entry().monitor_option;
  settings.monitor_every_steps = every_steps(rates_.monitor);
  settings.save_every_steps = every_steps(rates_.checkpoint);
  return settings;
}

config::RequestSource selftest_source(const task::Registry& registry, config::RequestSource source,
                                      const MachineFacts& machine) {
  const auto job = train::Job::read(registry, source, machine);
  const config::Resolved& resolved = job->resolved();
  const int64_t accumulate = job->trainer().accumulate_grad_batches;
  std::vector<std::string> words = {"trainer.log_every_n_steps=2",
                                    fmt::format("trainer.val_check_interval={}", 4 * accumulate),
                                    "trainer.limit_val_batches=1",
                                    "trainer.num_sanity_val_steps=0",
                                    "exp_manager.checkpoint_callback_params.every_n_train_steps=3",
                                    "exp_manager.checkpoint_callback_params.save_top_k=1"};
  const task::TaskEntry& entry = job->entry();
  if (resolved.find(entry.monitor_option) != nullptr) {
    words.push_back(entry.monitor_option + "=2");
    words.push_back(entry.monitor_plot_option + "=1000000");
  }
  // A validation reads through the same stages; as many samples as a step, so that a slow stage shows in the step
  // first.
  if (const auto* batch = resolved.find("model.train_ds.batch_size"); batch != nullptr && batch->value.is_scalar())
    words.push_back("model.validation_ds.batch_size=" + batch->value.text());
  source.overrides.insert(source.overrides.begin(), words.begin(), words.end());
  return source;
}

doctor::Settings settings_of_record(const measure::RunRecord& record, const task::Registry& registry) {
  if (record.config_yaml.empty()) return {};
  const config::Node tree = config::read_yaml_text(record.config_yaml, "config.resolved.yaml");
  doctor::Settings settings = read_settings(
      [&](const char* path, int64_t fallback) {
        const config::Node* node = tree.find_path(path);
        return node != nullptr ? node->as_int().value_or(fallback) : fallback;
      },
      [&](const char* path) {
        const config::Node* node = tree.find_path(path);
        return node != nullptr && node->is_scalar() ? node->text() : std::string();
      });
  for (const task::TaskEntry& entry : registry.entries())
    if (!entry.monitor_option.empty() && tree.find_path(entry.monitor_option) != nullptr)
      settings.monitor_option = entry.monitor_option;
  return settings;
}

}  // namespace redline::app
