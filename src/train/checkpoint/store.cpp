// The store: one writer thread with one job at a time, a snapshot that is reused, and the rules for failure. Decisions
// about when and what to keep are elsewhere (interval, retention); the order of disk operations is in generation.cpp.
#include "train/checkpoint/store.h"

#include <ATen/Parallel.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "core/check.h"
#include "core/cores.h"
#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/time.h"
#include "train/checkpoint/generation.h"
#include "train/checkpoint/loading.h"
#include "train/checkpoint/retention.h"
#include "train/checkpoint/snapshot.h"
#include "train/checkpoint/timed_file_ops.h"
#include "train/testing/fault_file_ops.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

constexpr int kWriterNice = 19;

// The writer gives way to training: it has until the next save to finish. Signals stay with the loop's thread.
void become_background_thread() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  sched_param none{};
  ::pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kWriterNice);
}

struct WriteJob {
  GenerationHead head;
  std::vector<GenerationFile> files;
  double stall_seconds = 0;
};

}  // namespace

struct CheckpointStore::Impl {
  fs::path directory;
  CheckpointConfig config;
  EventSink events;
  std::unique_ptr<TimedFileOps> ops;

  Snapshot snapshot;
  std::set<int64_t> known_steps;  // written or loaded by this process, so known to be whole
  bool leftovers_removed = false;
  double last_stall = 0;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::thread writer;
  std::optional<WriteJob> job;  // set while the writer has work
  bool stopping = false;
  bool degraded = false;
  double last_write = 0, last_write_cpu = 0;
  std::exception_ptr failure;  // to be thrown by the next call of the loop

  std::string monitor() const { return config.monitor.value_or("val_loss"); }

  void emit(const std::string& kind, const measure::FieldList& fields) const {
    if (events) events(kind, fields);
  }

  fs::path quarantine(const fs::path& path) {
    try {
      const fs::path kept = set_aside(path, "quarantine", *ops);
      emit("checkpoint.quarantined", {{"path", path.string()}, {"kept_as", kept.string()}});
      return kept;
    } catch (const DiskError& error) {
      log_warning(std::string("The damaged checkpoint stays where it is: ") + error.what());
      return path;
    }
  }

  void report_damage(const Damage& damage, const std::string& consequence) {
    measure::FieldList fields = {{"file", damage.file.string()}, {"reason", damage.reason}};
    if (damage.block) fields.emplace_back("block", static_cast<int64_t>(*damage.block));
    emit("checkpoint.damaged", fields);
    log_warning("Damaged checkpoint: " + damage.sentence() + ". " + consequence);
  }

  // True when this step is on disk and whole. A damaged one of the same step is moved out of the way.
  bool already_saved(int64_t step) {
    const fs::path path = directory / generation_name(step);
    std::error_code code;
    if (!fs::exists(path, code)) return false;
    if (known_steps.contains(step)) return true;
    VerifyReport report;
    try {
      report = verify_generation(path, VerifyDepth::Crc);
    } catch (const DiskError& error) {  // not known to be damaged, so it stays; the write will say what is possible
      log_warning(std::string("A checkpoint of this step is there and cannot be checked: ") + error.what());
      return false;
    }
    if (report.damage.empty()) return true;
    report_damage(report.damage.front(), "It is set aside and written again.");
    quarantine(path);
    return false;
  }

  void apply_retention() {
    std::vector<RetainedItem> items;
    std::vector<fs::path> paths;
    try {
      for (const GenerationInfo& info : list_generations(directory, monitor())) {
        items.push_back({info.step, info.metric});
        paths.push_back(info.path);
      }
    } catch (const DiskError& error) {  // the new one is saved; the old ones go another time
      log_warning_once(std::string("Old checkpoints are kept for now: ") + error.what());
      return;
    }
    const RetentionPolicy policy{config.keep_last, config.save_top_k, config.max_keep_ckpts, config.mode == "min"};
    for (size_t i : generations_to_remove(items, policy)) {
      try {
        remove_generation(paths[i], *ops);
      } catch (const DiskError& error) {  // the others still go
        log_warning_once(std::string("An old checkpoint could not be removed: ") + error.what());
        continue;
      }
      emit("checkpoint.removed", {{"path", paths[i].string()}, {"step", items[i].step}});
    }
  }

  // Two attempts, the second to new files: after a failed fsync the first ones cannot be trusted, whatever a retry
  // would say.
  uint64_t write_twice(const WriteJob& work) {
    try {
      return write_generation(directory, work.head, work.files, *ops);
    } catch (const DiskError& error) {
      emit("checkpoint.retried", {{"step", work.head.step}, {"reason", std::string(error.what())}});
      log_warning(std::string("Checkpoint not written, trying once more with new files: ") + error.what());
    }
    return write_generation(directory, work.head, work.files, *ops);
  }

  // Throws DiskError when the generation could not be written; retention's own troubles are only logged.
  void write_now(const WriteJob& work) {
    const int64_t begin = now_ns(), begin_cpu = thread_cpu_ns();
    if (!leftovers_removed) remove_leftovers(directory, *ops);
    leftovers_removed = true;
    ops->take();
    const uint64_t bytes = write_twice(work);
    const TimedFileOps::Syncs syncs = ops->take();
    const double seconds = seconds_between(begin, now_ns());
    {
      const std::lock_guard lock(mutex);
      last_write = seconds;
      last_write_cpu = static_cast<double>(thread_cpu_ns() - begin_cpu) * 1e-9;
      degraded = false;
    }
    emit("checkpoint.saved", {{"step", work.head.step},
                              {"path", (directory / generation_name(work.head.step)).string()},
                              {"bytes", static_cast<int64_t>(bytes)},
                              {"stall_seconds", work.stall_seconds},
                              {"write_seconds", seconds},
                              {"syncs", syncs.count},
                              {"sync_seconds", static_cast<double>(syncs.ns) * 1e-9}});
    apply_retention();
  }

  // The rule for a generation that failed twice. Returns normally when training may go on.
  void handle_failure(const WriteJob& work, const DiskError& error) {
    {
      const std::lock_guard lock(mutex);
      degraded = true;
    }
    emit("checkpoint_degraded", {{"step", work.head.step}, {"reason", std::string(error.what())}});
    if (config.on_error == "stop") throw error;
    log_warning("checkpoint_degraded: step " + std::to_string(work.head.step) + " could not be saved (" + error.what() +
                ") Training goes on; earlier checkpoints are intact. Free space before the next save, or the run ends "
                "with exit code 7.");
  }

  bool write_or_handle(const WriteJob& work) {
    try {
      write_now(work);
      return true;
    } catch (const DiskError& error) {
      handle_failure(work, error);
      return false;
    }
  }

  void writer_loop() {
    become_background_thread();
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return job.has_value() || stopping; });
      if (!job) return;
      const WriteJob work = *job;
      lock.unlock();
      std::exception_ptr thrown;
      bool written = false;
      try {
        written = write_or_handle(work);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      if (written) known_steps.insert(work.head.step);
      if (thrown) failure = thrown;
      job.reset();
      changed.notify_all();
    }
  }

  // Waits for the writer and passes on what it threw. After this the loop's thread may touch snapshot and known_steps.
  void wait_for_writer() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !job.has_value(); });
    if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
  }

  SaveReport save(const CheckpointState& state, int64_t step, std::optional<double> metric, bool async) {
    const int64_t begin = now_ns();
    wait_for_writer();
    SaveReport report;
    report.step = step;
    if (already_saved(step)) {
      report.written = false;
      return report;
    }
    WriteJob work{{step, monitor(), metric}, {}, 0};
    if (async && take_snapshot(state)) {
      report.bytes = snapshot.bytes();
      work.files = snapshot.files();
      work.stall_seconds = report.stall_seconds = last_stall = seconds_between(begin, now_ns());
      start(std::move(work));
    } else {
      work.files = live_files(state);
      report.written = write_or_handle(work);
      if (report.written) known_steps.insert(step);
      for (const NamedTensors* part : {&state.model, &state.optimizer}) {
        for (const auto& [name, tensor] : *part) report.bytes += tensor.nbytes();
      }
      report.stall_seconds = last_stall = seconds_between(begin, now_ns());
    }
    const std::lock_guard lock(mutex);
    report.write_seconds = last_write;
    return report;
  }

  bool take_snapshot(const CheckpointState& state) {
    try {
      const bool on_cpu = state.model.empty() || state.model.front().second.device().is_cpu();
      snapshot.take(state, on_cpu && at::get_num_threads() >= affinity_cpus());
      return true;
    } catch (const std::bad_alloc&) {
      log_warning_once("No memory for a copy of the state: checkpoints are written while training waits.");
      return false;
    }
  }

  void start(WriteJob work) {
    const std::lock_guard lock(mutex);
    if (!writer.joinable()) writer = std::thread([this] { writer_loop(); });
    job = std::move(work);
    changed.notify_all();
  }
};

CheckpointStore::CheckpointStore(fs::path directory, CheckpointConfig config, EventSink events, FileOps& ops)
    : impl_(std::make_unique<Impl>()) {
  impl_->directory = std::move(directory);
  impl_->config = std::move(config);
  impl_->events = std::move(events);
  impl_->ops = std::make_unique<TimedFileOps>(with_fault_points(ops));
  std::error_code code;
  if (!fs::is_directory(impl_->directory, code)) {
    ops.make_directory(impl_->directory);
    const fs::path parent = fs::absolute(impl_->directory).lexically_normal().parent_path();
    ops.sync_directory(parent);
  }
}

CheckpointStore::~CheckpointStore() {
  {
    std::unique_lock lock(impl_->mutex);
    impl_->changed.wait(lock, [&] { return !impl_->job.has_value(); });
    impl_->stopping = true;
    impl_->changed.notify_all();
  }
  if (impl_->writer.joinable()) impl_->writer.join();
}

SaveReport CheckpointStore::save(const CheckpointState& state, int64_t step, std::optional<double> metric) {
  return impl_->save(state, step, metric, impl_->config.async);
}
SaveReport CheckpointStore::save_sync(const CheckpointState& state, int64_t step, std::optional<double> metric) {
  return impl_->save(state, step, metric, false);
}

bool CheckpointStore::busy() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->job.has_value();
}
void CheckpointStore::wait() { impl_->wait_for_writer(); }

bool CheckpointStore::degraded() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->degraded;
}
double CheckpointStore::last_stall_seconds() const { return impl_->last_stall; }
double CheckpointStore::last_write_seconds() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->last_write;
}
double CheckpointStore::last_write_cpu_seconds() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->last_write_cpu;
}

std::optional<LoadedCheckpoint> CheckpointStore::load_newest() {
  impl_->wait_for_writer();
  std::vector<std::pair<fs::path, Damage>> damaged;
  auto loaded = load_newest_usable(
      impl_->directory, [&](const fs::path& path, const Damage& damage) { damaged.emplace_back(path, damage); });
  if (loaded) adopt(*loaded, damaged);
  return loaded;
}

void CheckpointStore::adopt(const LoadedCheckpoint& loaded, const std::vector<std::pair<fs::path, Damage>>& damaged) {
  impl_->wait_for_writer();
  for (const auto& [path, damage] : damaged) {
    impl_->report_damage(damage, "It is set aside, the generation before it is used.");
    impl_->quarantine(path);
  }
  impl_->known_steps.insert(loaded.info.step);
}

LoadedCheckpoint CheckpointStore::load(const fs::path& path) { return load_checkpoint(path); }

std::optional<GenerationInfo> CheckpointStore::best() const {
  return best_generation(impl_->directory, impl_->monitor(), impl_->config.mode);
}

std::vector<GenerationInfo> CheckpointStore::list() const {
  return list_generations(impl_->directory, impl_->monitor());
}

void CheckpointStore::set_aside_after(int64_t step) {
  impl_->wait_for_writer();
  for (const fs::path& path : generation_paths(impl_->directory)) {
    const int64_t found = generation_step(path.filename().string()).value();
    if (found <= step) continue;
    set_aside(path, "superseded", *impl_->ops);
    impl_->known_steps.erase(found);
    log_info("Checkpoint of step " + std::to_string(found) + " set aside: training goes on from step " +
             std::to_string(step) + ".");
  }
}

void CheckpointStore::forget() {
  impl_->wait_for_writer();
  for (const fs::path& path : generation_paths(impl_->directory)) remove_generation(path, *impl_->ops);
  impl_->known_steps.clear();
}

const fs::path& CheckpointStore::directory() const { return impl_->directory; }

}  // namespace redline::train
