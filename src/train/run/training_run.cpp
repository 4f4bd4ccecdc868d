#include "train/run/training_run.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "device/memory.h"
#include "device/process_memory.h"
#include "device/threads.h"
#include "measure/step_clock.h"
#include "train/checkpoint/generation.h"
#include "train/job/summary.h"
#include "train/job/weights.h"
#include "train/loop/batches.h"
#include "train/loop/signals.h"
#include "train/run/run_observer.h"

namespace redline::train {

namespace {

std::string resume_word(const ExpManagerConfig& config) {
  return config.resume.value_or(config.resume_if_exists ? "auto" : "none");
}
bool resumes_by_itself(const std::string& word) { return word == "auto" || word == "true"; }
bool never_resumes(const std::string& word) { return word == "none" || word == "false"; }

// A checkpoint asked for by path; nullopt when none was.
std::optional<LoadedCheckpoint> load_asked_checkpoint(const ExpManagerConfig& config) {
  const std::string resume = resume_word(config);
  if (resumes_by_itself(resume) || never_resumes(resume)) return std::nullopt;
  std::filesystem::path path = std::filesystem::path(resume).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();  // a slash at the end
  std::error_code ignored;
  if (std::filesystem::is_directory(path / "checkpoints", ignored)) {
    auto newest = CheckpointStore(path / "checkpoints", CheckpointConfig()).load_newest();
    if (!newest) throw CheckpointError(fmt::format("The run {} has no checkpoint to resume from.", path.string()));
    return newest;
  }
  LoadedCheckpoint loaded = CheckpointStore::load(path);
  if (loaded.state.state_json.empty())
    throw CheckpointError(fmt::format(
        "{} holds weights only, so there is nothing to resume; use load_from to start from weights.", path.string()));
  return loaded;
}

// Generations of this run that are newer than the one asked for belong to a future that will not come.
void set_aside_later_ones(CheckpointStore& store, const LoadedCheckpoint& asked) {
  std::error_code ignored;
  if (std::filesystem::equivalent(std::filesystem::absolute(asked.info.path).parent_path(), store.directory(), ignored))
    store.set_aside_after(asked.info.step);
}

bool starts_afresh(const ExpManagerConfig& config, const std::filesystem::path& directory) {
  if (never_resumes(resume_word(config))) return true;
  if (!resumes_by_itself(resume_word(config))) return false;
  return !config.create_checkpoint_callback || generation_paths(directory / "checkpoints").empty();
}

// What the first start resolved from its machine stays, so that the run continues bit by bit.
void take_resolved_values(Job& job, const LoopState& state) {
  if (job.threads_were_auto() && state.intra_op_threads > 0) job.set_intra_op_threads(state.intra_op_threads);
  if (job.precision_was_chosen()) job.set_precision(state.precision_name);
}

void say_what_differs(const Job& job, const LoopState& state) {
  if (state.config_hash != job.config_hash())
    log_warning(fmt::format(
        "The checkpoint was made with other settings (config hash {}, now {}); continuing with the new ones.",
        state.config_hash, job.config_hash()));
  if (state.intra_op_threads != job.trainer().intra_op_threads.value())
    log_warning(fmt::format(
        "The checkpoint was made with {} intra-op threads, now {}: the run continues within rounding, not bit by bit.",
        state.intra_op_threads, job.trainer().intra_op_threads.value()));
  else if (state.numerics != device::numerics_fingerprint())
    log_warning(fmt::format(
        "The checkpoint was made under other numerics ({}, now {}): the run continues within rounding, not bit by bit.",
        state.numerics, device::numerics_fingerprint()));
}

void load_initial_weights(const Job& job, task::Task& task) {
  if (!job.root().load_from) return;
  const WeightsReport report = load_weights(task.module(), read_weights(*job.root().load_from));
  if (report.loaded.empty() || (job.root().load_strict && !report.complete()))
    throw CheckpointError(
        fmt::format("The weights in {} do not fit this model: {}.", *job.root().load_from, report.text(64)));
  log_info(fmt::format("Weights from {}: {}.", *job.root().load_from, report.text(64)));
}

void say_start(const Job& job, const task::Task& task, const Trainer& trainer, const LoopSettings& settings,
               const std::filesystem::path& directory) {
  const ModelSize size = model_size(const_cast<task::Task&>(task).module());
  if (!job.precision_warning().empty()) log_warning(job.precision_warning());
  log_info(fmt::format("{} on {}: {} parameters, precision {}, {} intra-op threads, {} workers.", job.entry().name,
                       settings.device.str(), format_count(static_cast<double>(size.parameters)),
                       precision_name(job.precision()), settings.intra_op_threads, job.train_ds().num_workers.value()));
  log_info(fmt::format("Batch {} x {} = {} samples per step, {} steps per epoch; log every {} steps, validation {}.",
                       job.train_ds().batch_size.value(), job.trainer().accumulate_grad_batches,
                       job.train_ds().batch_size.value() * job.trainer().accumulate_grad_batches,
                       trainer.steps_per_epoch(), settings.cadence.log_every_n_steps,
                       validation_words(settings.cadence, trainer.steps_per_epoch())));
  log_info(fmt::format("Run directory {}.", directory.string()));
  if (!job.trainer().enable_model_summary) return;
  for (const std::string& line : split("Model:\n" + model_summary(const_cast<task::Task&>(task).module()), '\n'))
    if (!line.empty()) log_info(line);  // one by one: a log line has no line ends
}

void say_end(const FitResult& fit, int64_t started_at, const std::filesystem::path& directory) {
  std::string why = fit.stop != StopReason::None ? fmt::format("{} was reached", stop_reason_text(fit.stop))
                    : !fit.early_stop.empty()    ? fmt::format("early stopping: {}", fit.early_stop)
                                                 : fmt::format("{}", signal_text(fit.stop_signal));
  if (fit.steps == started_at && fit.stop != StopReason::None) {
    log_info(fmt::format("Nothing left to do: {} was reached before, at step {}. Results in {}.",
                         stop_reason_text(fit.stop), fit.steps, directory.string()));
    return;
  }
  std::string validation;
  for (const auto& [name, value] : fit.last_validation) validation += fmt::format(", {} {:.5g}", name, value);
  log_info(fmt::format("Stopped after {} steps ({}); loss {:.5g}{}. Results in {}.", fit.steps, why, fit.last_loss,
                       validation, directory.string()));
}

// The guard splits steps; what does not fit outside of them (weights, optimiser state, a single validation sample) has
// no smaller piece.
[[noreturn]] void throw_outside_a_step(const c10::OutOfMemoryError& error) {
  throw OutOfMemoryError(fmt::format(
      "The model, its optimiser's state or one validation sample does not fit in memory ({}). Use a smaller "
      "model, or raise trainer.memory_limit.",
      error.what_without_backtrace()));
}

int64_t total_steps(const LoopSettings& s, int64_t steps_per_epoch) {
  int64_t total = s.cadence.max_steps > 0 ? s.cadence.max_steps : 0;
  if (s.cadence.max_epochs > 0 && (total == 0 || s.cadence.max_epochs * steps_per_epoch < total))
    total = s.cadence.max_epochs * steps_per_epoch;
  return total;
}

void limit_memory(const Job& job) {
  device::memory::install();
  device::memory::set_enabled(true);
  const int64_t limit = job.trainer().memory_limit
                            ? static_cast<int64_t>(*parse_bytes(*job.trainer().memory_limit))
                            : device::memory::default_limit(static_cast<uint64_t>(device::system_available_bytes()),
                                                            device::memory::stats().live_bytes,
                                                            static_cast<uint64_t>(job.train_ds().max_buffer_bytes));
  device::memory::set_limit(job.device().is_cpu() ? limit : 0);
}

}  // namespace

std::unique_ptr<task::Task> build_within_limit(const Job& job) {
  limit_memory(job);
  std::unique_ptr<task::Task> task = job.build_task();
  device::memory::set_enabled(false);
  return task;
}

void prepare_process(const Job& job) {
  limit_memory(job);
  device::set_intra_op_threads(static_cast<int>(job.trainer().intra_op_threads.value()));
  device::fix_mkl_threads();
  device::set_deterministic(job.trainer().deterministic);
  if (job.device().is_cuda()) at::globalContext().setBenchmarkCuDNN(job.trainer().benchmark);
}

namespace {

RunSummary run_job(Job& job, const RunOptions& options) {
  const ExpManagerConfig& exp = job.exp_manager();
  RunSummary summary;
  summary.directory = run_directory(exp, job.root().name);
  const SignalScope signals;
  const bool keeps = exp.create_checkpoint_callback;

  std::unique_ptr<task::Task> task = build_within_limit(job);
  const auto train = job.build_loader(*task, Job::Part::Train, summary.directory);
  const auto validation = job.build_loader(*task, Job::Part::Validation, summary.directory);
  make_loop_settings(job, *task, *train);  // a job that cannot run is refused before anything is written
  if (starts_afresh(exp, summary.directory)) load_initial_weights(job, *task);
  std::optional<LoadedCheckpoint> loaded = load_asked_checkpoint(exp);
  measure::RunWriter writer(summary.directory, /*resume=*/!never_resumes(resume_word(exp)), metric_table(*task));
  std::unique_ptr<CheckpointStore> store;
  if (keeps)
    store = std::make_unique<CheckpointStore>(
        summary.directory / "checkpoints", exp.checkpoint_callback_params,
        [&writer](const std::string& kind, const measure::FieldList& fields) { writer.event(kind, fields); });
  if (loaded && store) set_aside_later_ones(*store, *loaded);
  if (store && resumes_by_itself(resume_word(exp))) loaded = store->load_newest();
  if (loaded) take_resolved_values(job, LoopState::from_json(loaded->state.state_json));
  prepare_process(job);
  writer.write_config(job.resolved().dump_yaml());
  writer.write_machine(job.machine());

  std::vector<std::string> notes;
  LoopSettings settings = make_loop_settings(job, *task, *train, &notes);
  settings.plot_directory = (summary.directory / "plots").string();
  if (settings.device.is_cpu()) settings.process_bytes = device::system_available_bytes() + device::process_rss_bytes();
  for (const std::string& note : notes) log_warning(note);
  RunObserverSettings watch{exp.create_tensorboard_logger,
                            exp.create_csv_logger,
                            job.trainer().enable_progress_bar,
                            exp.histograms_every_n_steps,
                            loaded ? loaded->info.step : -1,
                            options.trace,
                            total_steps(settings, limited_steps(train->steps_per_epoch(), settings.limit_train_batches,
                                                                job.trainer().accumulate_grad_batches))};
  RunObserver observer(writer, *task, watch);
  device::CopyStream stream(settings.device.str());
  Trainer trainer({*task, *train, validation.get(), store.get(), &observer, &stream}, settings);
  observer.watch(trainer.clock());
  observer.config(job.resolved().dump_yaml());
  if (loaded) {
    trainer.load(loaded->state);
    summary.started_at_step = trainer.position().step;
    say_what_differs(job, trainer.position());
    writer.event("resumed", {{"step", trainer.position().step}, {"from", loaded->info.path.string()}});
    log_info(fmt::format("Resuming from {} at step {}.", loaded->info.path.string(), trainer.position().step));
  }
  say_start(job, *task, trainer, settings, summary.directory);
  writer.event("loop.cost", {{"phase_scope_ns", measure::calibrate_scope_ns()}});
  try {
    summary.fit = trainer.fit();
  } catch (...) {
    observer.finish();
    throw;
  }
  observer.finish();
  say_end(summary.fit, summary.started_at_step, summary.directory);
  writer.event("run.ended",
               {{"step", summary.fit.steps},
                {"why", summary.fit.stop_signal != 0      ? signal_text(summary.fit.stop_signal)
                        : !summary.fit.early_stop.empty() ? std::string("early_stopping")
                                                          : std::string(stop_reason_text(summary.fit.stop))}});
  summary.degraded = store != nullptr && store->degraded();
  if (summary.degraded)
    throw DiskError(
        "Training ended, but the last checkpoints could not be written; the newest good one is older than the end of "
        "the run.");
  if (summary.fit.stop_signal != 0)
    throw PreemptedError(fmt::format("Stopped by {} at step {}{}; run the same command again to continue.",
                                     signal_text(summary.fit.stop_signal), summary.fit.steps, keeps ? ", saved" : ""));
  return summary;
}

}  // namespace

RunSummary run_training(Job& job, const RunOptions& options) {
  try {
    return run_job(job, options);
  } catch (const c10::OutOfMemoryError& error) {
    throw_outside_a_step(error);
  }
}

int64_t rows_at_once(const Job& job) {
  const data::DatasetConfig& data = job.train_ds();
  if (const int64_t micro = data.micro_batch_size.value_or(0); micro > 0) return micro;
  if (const int64_t batch = data.batch_size.value(); batch > 0) return batch;
  // Bounded by length: as many of the longest samples as the bound holds.
  const double longest =
      data.batch_tokens ? static_cast<double>(data.max_sequence_length.value_or(0)) : data.max_duration.value_or(0);
  const double bound = data.batch_tokens ? static_cast<double>(*data.batch_tokens) : data.batch_duration.value_or(0);
  return longest > 0 ? std::max<int64_t>(1, static_cast<int64_t>(bound / longest)) : 1;
}

int64_t longest_batch_peak(const Job& job, task::Task& task, int64_t rows, bool in_pieces) {
  const task::Batch worst = task.worst_case_batch(rows);
  if (worst.size() == 0) return 0;
  device::memory::begin_step();
  measure::StepClock clock;
  StepCompute compute(task, job.device(), clock);
  compute.begin({job.seed(), 0, job.precision(), 1.0, 1});
  compute.add(worst);
  if (in_pieces) compute.add(worst);
  return device::memory::stats().step_peak_bytes;
}

int64_t longest_batch_peak(const Job& job, task::Task& task) {
  const int64_t rows = rows_at_once(job);
  return longest_batch_peak(
      job, task, rows,
      rows < std::max(rows, job.train_ds().batch_size.value()) * job.trainer().accumulate_grad_batches);
}

namespace {

std::vector<std::string> try_job(Job& job) {
  std::vector<std::string> lines;
  prepare_process(job);
  const std::unique_ptr<task::Task> task = job.build_task();
  load_initial_weights(job, *task);
  const auto train = job.build_loader(*task, Job::Part::Train, {});
  const auto validation = job.build_loader(*task, Job::Part::Validation, {});
  const LoopSettings settings = make_loop_settings(job, *task, *train, &lines);
  const ModelSize size = model_size(task->module());
  lines.push_back(fmt::format("task {}: {} parameters ({}), precision {}", job.entry().name, size.parameters,
                              format_bytes(static_cast<uint64_t>(size.bytes)), precision_name(job.precision())));
  lines.push_back(fmt::format("training data: {} steps per epoch; validation data: {}", train->steps_per_epoch(),
                              validation ? fmt::format("{} batches", validation->steps_per_epoch()) : "none"));
  device::CopyStream stream(settings.device.str());
  Trainer trainer({*task, *train, nullptr, nullptr, nullptr, &stream}, settings);
  device::memory::begin_step();
  trainer.run_steps(1);
  lines.push_back(fmt::format("one step: {} of tensors at its peak",
                              format_bytes(static_cast<uint64_t>(device::memory::stats().step_peak_bytes))));
  // The longest samples allowed decide whether a run survives its first epoch.
  if (const int64_t peak = longest_batch_peak(job, *task); peak > 0)
    lines.push_back(fmt::format("a batch of {} of the longest samples: {} of tensors at its peak, limit {}",
                                rows_at_once(job), format_bytes(static_cast<uint64_t>(peak)),
                                format_bytes(static_cast<uint64_t>(device::memory::limit()))));
  return lines;
}

}  // namespace

std::vector<std::string> dry_run(Job& job) {
  try {
    return try_job(job);
  } catch (const c10::OutOfMemoryError& error) {
    throw_outside_a_step(error);
  }
}

}  // namespace redline::train
