// What rank 0 does in run_job, less everything that is written once for all: the others choose no directory, save
// nothing, draw nothing. Their own record says what this rank did, for whoever asks why the others waited.
#include <filesystem>

#include "core/error.h"
#include "core/log.h"
#include "device/process_memory.h"
#include "train/checkpoint/loading.h"
#include "train/checkpoint/store.h"
#include "train/loop/trainer.h"
#include "train/ranks/ranks.h"
#include "train/run/run_observer.h"
#include "train/run/run_start.h"
#include "train/signals.h"

namespace redline::train {

RunSummary follow_job(Job& job, Ranks& ranks) {
  const SignalScope signals;
  RunSummary summary;
  std::unique_ptr<task::Task> task = build_within_limit(job);
  const Ranks::Beginning begin = ranks.hear();
  summary.directory = std::filesystem::path(begin.directory) / "ranks" / std::to_string(job.machine().ranks.rank);
  std::error_code code;
  std::filesystem::create_directories(summary.directory, code);
  if (code)
    throw DiskError("This rank's record cannot be made in " + summary.directory.string() + ": " + code.message());

  const auto train = job.build_loader(*task, Job::Part::Train, summary.directory);
  const auto validation = job.build_loader(*task, Job::Part::Validation, summary.directory);
  std::optional<LoadedCheckpoint> loaded;
  if (!begin.checkpoint.empty()) loaded = CheckpointStore::load(begin.checkpoint);
  if (!loaded) load_initial_weights(job, *task);
  if (loaded) take_resolved_values(job, LoopState::from_json(loaded->state.state_json));
  prepare_process(job);
  LoopSettings settings = make_loop_settings(job, *task, *train);
  if (settings.device.is_cpu()) settings.process_bytes = available_bytes(job) + device::process_rss_bytes();
  device::CopyStream stream(settings.device.str());
  Trainer trainer({*task, *train, validation.get(), nullptr, nullptr, &stream, &ranks.agreement()}, settings);
  if (loaded) trainer.load(loaded->state);

  measure::RunWriter writer(summary.directory, /*resume=*/true, metric_table(*task));
  writer.write_machine(job.machine());
  RunObserverSettings quiet;
  quiet.tensorboard = quiet.csv = quiet.progress = quiet.announce = false;
  quiet.resume_step = loaded ? loaded->info.step : -1;
  RunObserver observer(writer, *task, quiet);
  observer.watch(trainer.clock());
  trainer.attach(nullptr, &observer);
  const RanksInLoop together(&ranks, trainer, writer);
  loaded.reset();
  summary.started_at_step = trainer.position().step;
  set_log_level(std::min(log_level(), LogLevel::Warning));
  summary.fit = trainer.fit();
  ranks.done();
  observer.finish();
  if (summary.fit.stop_signal != 0)
    throw PreemptedError("Stopped by " + signal_text(summary.fit.stop_signal) + " with the other ranks.");
  return summary;
}

}  // namespace redline::train
