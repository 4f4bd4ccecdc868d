#include "train/training_run.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"
#include "device/memory.h"
#include "device/process_memory.h"
#include "device/threads.h"
#include "measure/kept_writes.h"
#include "measure/step_clock.h"
#include "train/checkpoint/loading.h"
#include "train/diff.h"
#include "train/job/summary.h"
#include "train/loop/trainer.h"
#include "train/ranks/ranks.h"
#include "train/run/followers.h"
#include "train/run/rescue.h"
#include "train/run/run_observer.h"
#include "train/run/run_place.h"
#include "train/run/run_start.h"
#include "train/run/run_state.h"
#include "train/signals.h"
#include "train/step/batches.h"

namespace redline::train {

namespace {

// What a run begins with. Found without a byte written, so that a refusal leaves everything as it is.
struct Beginning {
  std::optional<LoadedCheckpoint> loaded;
  std::vector<std::pair<std::filesystem::path, Damage>> damaged;  // newer ones of its own
  bool own = false;                                               // loaded is the newest of the run itself
  bool abandons = false;                                          // its own are all unusable, and that was accepted
};

// A checkpoint asked for by path.
LoadedCheckpoint load_asked_checkpoint(const std::string& resume) {
  std::filesystem::path path = std::filesystem::path(resume).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();  // a slash at the end
  LoadedCheckpoint loaded = CheckpointStore::load(path);
  if (loaded.state.state_json.empty())
    throw CheckpointError(fmt::format(
        "{} holds weights only, so there is nothing to resume; use load_from to start from weights.", path.string()));
  return loaded;
}

// Of the run itself, by name.
LoadedCheckpoint load_named_checkpoint(const std::filesystem::path& run, const ExpManagerConfig& exp) {
  const std::filesystem::path folder = run / "checkpoints";
  const std::string word = exp.resume_word();
  const std::string metric = exp.checkpoint_callback_params.monitor.value_or("val_loss");
  std::error_code ignored;
  const auto there =
      std::filesystem::is_directory(folder, ignored) ? list_generations(folder, metric) : std::vector<GenerationInfo>();
  if (there.empty())
    throw CheckpointError(fmt::format("--resume {}: the run '{}' has no checkpoint; name the run with --run-dir.", word,
                                      printable(run.string())));
  if (word == "last") return load_checkpoint(folder);
  if (word == "best") {
    const auto best = best_generation(folder, metric, exp.checkpoint_callback_params.mode);
    if (!best)
      throw CheckpointError(fmt::format("--resume best: none of the run's checkpoints has the metric '{}'.", metric));
    return CheckpointStore::load(best->path);
  }
  return load_step(folder, parse_int(word).value_or(-1), "--resume " + printable(word));
}

[[noreturn]] void refuse_to_start_again(const std::filesystem::path& run, const Beginning& found) {
  const std::filesystem::path folder = run / "checkpoints";
  std::error_code ignored;
  throw CheckpointError(fmt::format(
      "The run '{}' has had checkpoints and none of them can be used, so it is not started again from step 0. {} "
      "Restore one from a copy; or --start-afresh begins at step 0 and keeps what is there as checkpoints.abandoned.",
      printable(run.string()),
      std::filesystem::is_directory(folder, ignored) || !found.damaged.empty() ? what_is_left(folder, found.damaged)
                                                                               : "Its folder 'checkpoints' is gone."));
}

Beginning find_beginning(const ExpManagerConfig& exp, const RunPlace& place, const RunOptions& options) {
  Beginning found;
  const std::filesystem::path& run = place.directory();
  if (exp.never_resumes()) {
    if (place.existed() && !measure::has_run_record(run) && ever_had_checkpoint(run))
      throw ConfigError(
          fmt::format("The run directory '{}' already holds checkpoints; choose another --run-dir, or continue with "
                      "--resume auto.",
                      printable(run.string())));
    return found;
  }
  if (exp.resumes_by_name()) {
    found.loaded = load_named_checkpoint(run, exp);
    return found;
  }
  if (!exp.resumes_by_itself()) {
    found.loaded = load_asked_checkpoint(exp.resume_word());
    return found;
  }
  if (!place.existed()) return found;
  found.loaded = newest_whole(run / "checkpoints", [&](const std::filesystem::path& path, const Damage& damage) {
    found.damaged.emplace_back(path, damage);
  });
  found.own = found.loaded.has_value();
  if (found.own && options.start_afresh)
    log_warning(fmt::format("--start-afresh has no effect: {} can be used, so the run continues from it.",
                            found.loaded->info.path.string()));
  if (found.own || !ever_had_checkpoint(run)) return found;
  if (!options.start_afresh) refuse_to_start_again(run, found);
  found.abandons = true;
  return found;
}

// The whole folder gets another name: nothing in it is lost, and nothing in it speaks against the new start.
void abandon_checkpoints(const std::filesystem::path& run, measure::RunWriter& writer) {
  const std::filesystem::path folder = run / "checkpoints";
  std::filesystem::path kept = run / "checkpoints.abandoned";
  std::error_code code;
  for (int i = 2; std::filesystem::exists(kept, code); ++i) kept = run / fmt::format("checkpoints.abandoned-{}", i);
  const bool there = std::filesystem::exists(folder, code);
  if (there) {
    posix_file_ops().rename(folder, kept);
    posix_file_ops().sync_directory(run);
  }
  writer.event("run.afresh", {{"kept_as", there ? kept.string() : std::string()}});
  log_warning(fmt::format("Starting afresh at step 0{}.",
                          there ? "; the checkpoints that cannot be used are kept in " + kept.string() : ""));
}

// Generations of this run that are newer than the one asked for belong to a future that will not come.
void set_aside_later_ones(CheckpointStore& store, const LoadedCheckpoint& asked) {
  std::error_code ignored;
  if (std::filesystem::equivalent(std::filesystem::absolute(asked.info.path).parent_path(), store.directory(), ignored))
    store.set_aside_after(asked.info.step);
}

// What the run had before this start; empty where that is not known.
std::string config_of(const std::filesystem::path& run) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  try {
    return read_file(run / "config.resolved.yaml", kMostBytes);
  } catch (const Error&) {
    return "";
  }
}

std::string changed_settings(const std::string& before, const Job& job) {
  constexpr size_t kMost = 12;
  std::vector<std::string> lines;
  try {
    lines = config_differences(before, job.resolved().dump_yaml());
  } catch (const Error&) {
    return "";  // a config that cannot be read says nothing of what differs
  }
  for (std::string& line : lines)
    if (const size_t bar = line.find(" | "); bar != std::string::npos) line.replace(bar, 3, " -> ");
  const size_t more = lines.size() > kMost ? lines.size() - kMost : 0;
  lines.resize(lines.size() - more);
  return lines.empty() ? "" : ": " + join(lines, ", ") + (more > 0 ? fmt::format(" and {} more", more) : "");
}

void say_what_differs(const Job& job, const LoopState& state, const std::string& config_before) {
  if (!identity_of_text(state.config_hash))
    log_info(
        "The checkpoint is from an older redline that hashed settings in another way, so they cannot be compared; "
        "continuing with this job's.");
  else if (state.config_hash != job.config_hash())
    log_warning(fmt::format("The checkpoint was made with other settings{}; continuing with the new ones.",
                            changed_settings(config_before, job)));
  if (state.intra_op_threads != job.trainer().intra_op_threads.value())
    log_warning(fmt::format(
        "The checkpoint was made with {} intra-op threads, now {}: the run continues within rounding, not bit by bit.",
        state.intra_op_threads, job.trainer().intra_op_threads.value()));
  else if (state.numerics != device::numerics_fingerprint())
    log_warning(fmt::format(
        "The checkpoint was made under other numerics ({}, now {}): the run continues within rounding, not bit by bit.",
        state.numerics, device::numerics_fingerprint()));
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
  if (const RankFacts& ranks = job.machine().ranks; ranks.world > 1)
    log_info(
        fmt::format("{} ranks share each batch; gradients go in buckets of {} MiB{}{}.", ranks.world,
                    job.trainer().strategy.bucket_cap_mb,
                    job.trainer().strategy.compression == "none" ? "" : ", as " + job.trainer().strategy.compression,
                    !task.batch_statistics()       ? ""
                    : job.trainer().sync_batchnorm ? ", BatchNorm spans ranks"
                                                   : ", what looks across a batch sees one rank's samples"));
  log_info(fmt::format("Run directory {}.", directory.string()));
  if (!job.trainer().enable_model_summary) return;
  for (const std::string& line : split("Model:\n" + model_summary(const_cast<task::Task&>(task).module()), '\n'))
    if (!line.empty()) log_info(line);  // one by one: a log line has no line ends
}

int64_t gradient_bytes(task::Task& task) {
  int64_t bytes = 0;
  for (const torch::Tensor& parameter : task.module().parameters())
    if (parameter.requires_grad()) bytes += static_cast<int64_t>(parameter.nbytes());
  return bytes;
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
  for (const auto& [name, value] : fit.last_validation)
    validation += fmt::format("{} {} {:.5g}", validation.empty() ? "; last validation:" : ",", name, value);
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
                            : device::memory::default_limit(static_cast<uint64_t>(available_bytes(job)),
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

// Whether the job itself said that this is the end: what was stopped from outside, or by a limit of time before its
// last step, is continued by the same command.
bool came_to_its_end(const Job& job, const FitResult& fit) {
  if (fit.stop_signal != 0) return false;
  if (fit.stop == StopReason::MaxTime) return job.trainer().max_steps < 0 && job.trainer().max_epochs < 0;
  return true;
}

std::string end_reason(const FitResult& fit) {
  if (fit.stop_signal != 0) return signal_text(fit.stop_signal);
  return fit.early_stop.empty() ? std::string(stop_reason_text(fit.stop)) : std::string("early_stopping");
}

std::string how_to_continue(const ExpManagerConfig& exp, const std::filesystem::path& directory) {
  if (!exp.create_checkpoint_callback) return "; nothing was saved, as exp_manager.create_checkpoint_callback is false";
  if (exp.resumes_by_itself() && (!exp.new_run || exp.run_dir || exp.exp_dir))
    return ", saved; run the same command again to continue";
  return fmt::format(", saved; to continue, run it again with --run-dir {} --resume auto", directory.string());
}

int64_t step_of(const measure::FieldList& fields) {
  for (const auto& [name, value] : fields)
    if (const auto* number = std::get_if<int64_t>(&value); name == "step" && number != nullptr) return *number;
  return 0;
}

void say_continuing(const RunPlace& place, const std::optional<LoadedCheckpoint>& loaded) {
  if (!place.found()) return;
  const std::string where =
      loaded ? fmt::format("stopped at step {}", loaded->info.step) : "stopped before its first checkpoint";
  log_info(fmt::format("Continuing {} ({}); --new-run starts another.", place.directory().string(), where));
}

// `ranks` null: one process. With several this is rank 0, which writes for all.
RunSummary run_job(Job& job, const RunOptions& options, Ranks* ranks) {
  const ExpManagerConfig& exp = job.exp_manager();
  RunSummary summary;
  const SignalScope signals;
  RunPlace place = RunPlace::choose(job);
  summary.directory = place.directory();

  // First everything that can refuse, and nothing written; the record is opened when the job has been accepted.
  std::unique_ptr<task::Task> task = build_within_limit(job);
  const auto train = job.build_loader(*task, Job::Part::Train, summary.directory);
  const auto validation = job.build_loader(*task, Job::Part::Validation, summary.directory);
  const auto more_validation = job.build_more_validation(*task, summary.directory);
  make_loop_settings(job, *task, *train);  // refuses a job that cannot run
  stop_before_start();
  Beginning begin = find_beginning(exp, place, options);
  const std::optional<LoadedCheckpoint>& loaded = begin.loaded;
  if (ranks != nullptr) ranks->announce({summary.directory.string(), loaded ? loaded->info.path.string() : ""});
  if (!loaded) load_initial_weights(job, *task);
  say_continuing(place, loaded);
  if (loaded) take_resolved_values(job, LoopState::from_json(loaded->state.state_json));
  prepare_process(job);
  std::vector<std::string> notes;
  LoopSettings settings = make_loop_settings(job, *task, *train, &notes);
  settings.plot_directory = (summary.directory / "plots").string();
  if (settings.device.is_cpu()) settings.process_bytes = available_bytes(job) + device::process_rss_bytes();
  device::CopyStream stream(settings.device.str());
  LoopParts parts{*task, *train, validation.get(), nullptr, nullptr, &stream, agreement_of(ranks)};
  for (const Job::NamedLoader& further : more_validation)
    parts.more_validation.emplace_back(further.name, further.loader.get());
  Trainer trainer(parts, settings);
  if (loaded) trainer.load(loaded->state);

  measure::RunWriter writer(summary.directory, /*resume=*/!exp.never_resumes(), metric_table(*task), place.keep());
  if (begin.abandons) abandon_checkpoints(summary.directory, writer);
  const bool checkpointed = place.existed() && !begin.abandons && ever_had_checkpoint(summary.directory);
  RunStateFile run_state(summary.directory, {job.request_hash(), checkpointed, ""});
  InPlaceFileOps ops(posix_file_ops(), writer.lock(), summary.directory);
  Followers followers(exp, summary.directory, exp.name.value_or(job.root().name));
  std::unique_ptr<CheckpointStore> store;
  if (exp.create_checkpoint_callback)
    store = std::make_unique<CheckpointStore>(
        summary.directory / "checkpoints", exp.checkpoint_callback_params,
        [&](const std::string& kind, const measure::FieldList& fields) {
          writer.event(kind, fields);
          if (kind != "checkpoint.saved") return;
          run_state.checkpointed();
          followers.saved(step_of(fields));
        },
        ops);
  if (loaded && store && begin.own) store->adopt(*loaded, begin.damaged);
  if (loaded && store && !begin.own) set_aside_later_ones(*store, *loaded);
  const std::string config_before = loaded ? config_of(summary.directory) : "";
  writer.write_config(job.resolved().dump_yaml());
  writer.write_machine(job.machine());

  for (const std::string& note : notes) log_warning(note);
  RunObserverSettings watch{
      exp.create_tensorboard_logger,
      exp.create_csv_logger,
      job.trainer().enable_progress_bar && log_level() <= LogLevel::Info && log_format() == LogFormat::Text,
      exp.histograms_every_n_steps,
      loaded ? loaded->info.step : -1,
      options.trace,
      total_steps(settings, limited_steps(train->steps_per_epoch(), settings.limit_train_batches,
                                          job.trainer().accumulate_grad_batches))};
  RunObserver observer(writer, *task, watch);
  observer.watch(trainer.clock());
  observer.tell(followers);
  observer.config(job.resolved().dump_yaml());
  trainer.attach(store.get(), &observer);
  const RanksInLoop together(ranks, trainer, writer);
  if (loaded) {
    summary.started_at_step = trainer.position().step;
    say_what_differs(job, trainer.position(), config_before);
    writer.event("resumed", {{"step", trainer.position().step}, {"from", loaded->info.path.string()}});
    log_info(fmt::format("Resuming from {} at step {}.", loaded->info.path.string(), trainer.position().step));
  }
  begin = {};  // the tensors are in the trainer
  say_start(job, *task, trainer, settings, summary.directory);
  writer.event("loop.cost", {{"phase_scope_ns", measure::calibrate_scope_ns()},
                             {"gradient_bytes", gradient_bytes(*task)},
                             {"computes_padding", task->computes_padding()}});
  const auto rescue_if_moved = [&] {
    if (!writer.lock().in_place())
      rescue(summary.directory, job.resolved().dump_yaml(), job.request_hash(), trainer.state(),
             trainer.position().step);
  };
  try {
    summary.fit = trainer.fit();
  } catch (...) {
    observer.finish();
    rescue_if_moved();
    writer.event("run.failed", {{"step", trainer.position().step}});
    followers.ended(trainer.position().step, "failed");
    throw;
  }
  if (ranks != nullptr) ranks->done();
  observer.finish();
  rescue_if_moved();
  say_end(summary.fit, summary.started_at_step, summary.directory);
  writer.event("run.ended", {{"step", summary.fit.steps}, {"why", end_reason(summary.fit)}});
  followers.ended(summary.fit.steps, end_reason(summary.fit));
  const measure::KeptWrites::Unwritten unwritten = measure::retry_kept_writes();
  summary.degraded = store != nullptr && store->degraded();
  if (summary.degraded)
    throw DiskError(
        "Training ended, but the last checkpoints could not be written; the newest good one is older than the end of "
        "the run.");
  if (unwritten.any())
    throw DiskError(
        fmt::format("Training ended at step {}{}, but {} pieces of its log (metrics, events, steps) could not be "
                    "written to {}: the "
                    "disk refused them until the end.",
                    summary.fit.steps, exp.create_checkpoint_callback ? " and its state is saved" : "",
                    unwritten.waiting + unwritten.dropped, summary.directory.string()));
  if (came_to_its_end(job, summary.fit)) run_state.ended(end_reason(summary.fit));
  if (summary.fit.stop_signal != 0)
    throw PreemptedError(fmt::format("Stopped by {} at step {}{}.", signal_text(summary.fit.stop_signal),
                                     summary.fit.steps, how_to_continue(exp, summary.directory)));
  return summary;
}

}  // namespace

RunSummary run_training(Job& job, const RunOptions& options) {
  try {
    if (options.launch.alone()) return run_job(job, options, nullptr);
    return run_with_ranks(job, options.launch, [&](Ranks& ranks) {
      return ranks.first() ? run_job(job, options, &ranks) : follow_job(job, ranks);
    });
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
  Alone agreement;
  EagerStep compute(task, job.device(), clock, agreement);
  compute.begin({job.seed(), 0, job.precision(), 1.0, 1});
  compute.add(worst, /*last=*/!in_pieces);
  if (in_pieces) compute.add(worst, /*last=*/true);
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

CompiledAhead compile_ahead(Job& job, int64_t steps) {
  class Listener : public LoopObserver {
   public:
    void event(const std::string& kind, const measure::FieldList& fields) override {
      std::map<std::string, measure::FieldValue> by_name(fields.begin(), fields.end());
      const auto text = [&](const char* name) { return std::get<std::string>(by_name.at(name)); };
      const auto number = [&](const char* name) { return std::get<double>(by_name.at(name)); };
      if (kind == "compile.switch")
        heard.lines.push_back(fmt::format("{}: {:.1f} ms compiled, {:.1f} ms eager; compiling took {}", text("shape"),
                                          number("compiled_ms"), number("eager_ms"),
                                          format_seconds(number("compile_seconds"))));
      if (kind == "compile.refused") heard.lines.push_back(fmt::format("not compiled: {}", text("why")));
    }
    CompiledAhead heard;
  } listener;
  try {
    prepare_process(job);
    const std::unique_ptr<task::Task> task = job.build_task();
    load_initial_weights(job, *task);
    const auto train = job.build_loader(*task, Job::Part::Train, {});
    LoopSettings settings = make_loop_settings(job, *task, *train, nullptr);
    settings.compile.mode = CompileMode::Before;
    device::CopyStream stream(settings.device.str());
    Trainer trainer({*task, *train, nullptr, nullptr, &listener, &stream}, settings);
    trainer.run_steps(steps);
    listener.heard.packages = trainer.num_packages();
  } catch (const c10::OutOfMemoryError& error) {
    throw_outside_a_step(error);
  }
  return std::move(listener.heard);
}

std::vector<std::string> dry_run(Job& job) {
  try {
    return try_job(job);
  } catch (const c10::OutOfMemoryError& error) {
    throw_outside_a_step(error);
  }
}

}  // namespace redline::train
