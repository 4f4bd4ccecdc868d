// The order of creation matters: steps.bin marks a directory as a run record, so it is made last and with an atomic
// rename; a kill before that leaves a directory that a new run may use.
#include <unistd.h>

#include <mutex>

#include "core/check.h"
#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/time.h"
#include "measure/append_file.h"
#include "measure/detail/steps_file.h"
#include "measure/kept_writes.h"
#include "measure/machine_json.h"
#include "measure/record_lines.h"
#include "measure/run_lock.h"
#include "measure/run_record.h"
#include "measure/step_clock.h"

namespace redline::measure {
namespace {

constexpr size_t kRowsPerWrite = 64;
constexpr int64_t kLongestWaitNs = 1'000'000'000;

void make_run_directory(const std::filesystem::path& directory) {
  std::error_code error;
  if (std::filesystem::exists(directory, error) && !std::filesystem::is_directory(directory, error)) {
    throw ConfigError("The run directory '" + printable(directory.string()) + "' is a file; choose another --run-dir.");
  }
  std::filesystem::create_directories(directory, error);
  if (error) throw_disk_error("Creating the run directory", directory, error.value());
}

std::string read_if_there(const std::filesystem::path& path) {
  return std::filesystem::exists(path) ? read_file(path) : std::string();
}

// Cuts a torn last line and writes the first line of a new file.
void prepare_lines(AppendFile& file, const char* format) {
  const std::string bytes = read_if_there(file.path());
  const size_t newline = bytes.rfind('\n');
  file.truncate(newline == std::string::npos ? 0 : static_cast<int64_t>(newline) + 1);
  if (file.size() == 0) file.append(lines_header(format));
}

}  // namespace

struct RunWriter::Impl {
  std::filesystem::path directory;
  MetricTable metrics;
  RunLock lock;
  bool resumed;
  KeptFile events, metric_lines;
  std::unique_ptr<KeptFile> steps;
  std::mutex mutex;
  std::string pending;  // encoded rows
  int64_t last_write_ns = now_ns();

  Impl(const std::filesystem::path& chosen, bool resume, MetricTable table, std::optional<RunLock> held)
      : directory(chosen),
        metrics(std::move(table)),
        lock(held ? std::move(*held) : RunLock(chosen)),
        resumed(check_existing(chosen, resume)),
        events(chosen / "events.jsonl"),
        metric_lines(chosen / "metrics.jsonl") {
    lock.announce();
    if (!resumed) {  // left by a run that was killed before its record existed
      events.file().truncate(0);
      metric_lines.file().truncate(0);
    }
    prepare_lines(events.file(), "redline.events");
    prepare_lines(metric_lines.file(), "redline.metrics");
    open_steps();
  }

  static bool check_existing(const std::filesystem::path& chosen, bool resume) {
    const bool exists = has_run_record(chosen);
    if (exists && !resume) {
      throw ConfigError(
          "The run directory '" + printable(chosen.string()) +
          "' already holds a run record; choose another --run-dir, or continue that run with --resume auto.");
    }
    return exists;
  }

  void open_steps() {
    const std::filesystem::path path = directory / "steps.bin";
    if (!resumed) write_file_atomic(path, encode_steps_header());
    const StepsContent content = decode_steps(read_file(path), path.string());
    for (const std::string& warning : content.warnings) log_warning(warning);
    steps = std::make_unique<KeptFile>(path);
    steps->file().truncate(content.good_bytes);
    if (content.good_bytes == 0) steps->file().append(encode_steps_header());
  }

  void write_pending() {
    if (pending.empty()) return;
    last_write_ns = now_ns();
    steps->append(std::exchange(pending, {}));
  }

  void flush() {
    write_pending();
    for (KeptFile* file : {steps.get(), &events, &metric_lines}) file->retry();
  }
};

RunWriter::RunWriter(const std::filesystem::path& directory, bool resume, MetricTable metrics,
                     std::optional<RunLock> held) {
  make_run_directory(directory);
  impl_ = std::make_unique<Impl>(directory, resume, std::move(metrics), std::move(held));
  char host[256] = "unknown";
  ::gethostname(host, sizeof(host) - 1);
  event(impl_->resumed ? "run.resumed" : "run.started", {{"process", int64_t{::getpid()}},
                                                         {"host", std::string(host)},
                                                         {"monotonic_ns", now_ns()},
                                                         {"phase_scope_ns", calibrate_scope_ns()}});
}

RunWriter::~RunWriter() {
  flush();
  int64_t lost = 0;
  for (const KeptFile* file : {impl_->steps.get(), &impl_->events, &impl_->metric_lines}) {
    const KeptWrites::Unwritten left = file->unwritten();
    lost += left.waiting + left.dropped;
  }
  if (lost > 0)
    log_error("The record in '" + printable(impl_->directory.string()) + "' is not complete: " + std::to_string(lost) +
              " pieces of it could not be written.");
}

void RunWriter::write_config(const std::string& resolved_yaml) {
  write_file_atomic(impl_->directory / "config.resolved.yaml", resolved_yaml);
}

void RunWriter::write_machine(const MachineFacts& facts) {
  write_file_atomic(impl_->directory / "machine.json", machine_to_json(facts));
}

void RunWriter::step(const StepRow& row) {
  const std::lock_guard lock(impl_->mutex);
  encode_step(row, impl_->pending);
  if (impl_->pending.size() >= kRowsPerWrite * kStepRowBytes || now_ns() - impl_->last_write_ns >= kLongestWaitNs) {
    impl_->write_pending();
  }
}

void RunWriter::event(const std::string& kind, const FieldList& fields) {
  const std::string line = event_line(utc_timestamp(), kind, fields);
  const std::lock_guard lock(impl_->mutex);
  impl_->events.append(line);
}

void RunWriter::metric(int64_t step, const std::string& name, double value) { metrics(step, {{name, value}}); }

void RunWriter::metrics(int64_t step, const std::map<std::string, double>& values) {
  std::string lines;
  for (const auto& [name, value] : values) {
    REDLINE_CHECK(impl_->metrics.find(name) != nullptr, "the metric '" + name + "' is declared in the metric table");
    lines += metric_line(step, name, value);
  }
  const std::lock_guard lock(impl_->mutex);
  impl_->metric_lines.append(lines);
}

void RunWriter::flush() {
  const std::lock_guard lock(impl_->mutex);
  impl_->flush();
}

void RunWriter::sync() {
  flush();
  const std::lock_guard lock(impl_->mutex);
  impl_->steps->file().sync();
  impl_->events.file().sync();
  impl_->metric_lines.file().sync();
}

const std::filesystem::path& RunWriter::directory() const { return impl_->directory; }

const RunLock& RunWriter::lock() const { return impl_->lock; }

std::filesystem::path dated_run_directory(const std::filesystem::path& base, const std::string& name) {
  const std::filesystem::path dated = (name.empty() ? base : base / name) / local_date_for_path();
  std::filesystem::path candidate = dated;
  for (int i = 2; std::filesystem::exists(candidate); ++i) candidate = dated.string() + "-" + std::to_string(i);
  return candidate;
}

bool has_run_record(const std::filesystem::path& directory) {
  std::error_code ignored;
  return std::filesystem::exists(directory / "steps.bin", ignored);
}

}  // namespace redline::measure
