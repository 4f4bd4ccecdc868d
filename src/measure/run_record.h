// A run directory: what happened, readable by anyone, also after a kill at any byte. Formats and versions:
// docs/formats.md.
//   config.resolved.yaml  machine.json  steps.bin  events.jsonl  metrics.jsonl  checkpoints/  lock
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/machine_facts.h"
#include "measure/metrics.h"
#include "measure/phases.h"
#include "measure/run_lock.h"

namespace redline::measure {

inline constexpr int kRunRecordVersion = 1;

// One optimiser step. Fixed size on disk, each row with its own checksum, so a torn tail is seen and dropped.
struct StepRow {
  int64_t step = 0;  // optimiser steps done after this one, from 1
  int64_t epoch = 0;
  int64_t begin_ns = 0, wall_ns = 0;  // monotonic clock of the process
  PhaseTimes phase_ns{};              // sums to wall_ns
  StageTimes stage_ns{};              // worker-seconds spent since the previous row
  int32_t samples = 0, micro_batches = 0;
  int64_t items = 0, padded_items = 0;     // e.g. frames or tokens: real, and real + padding
  int64_t live_bytes = 0, peak_bytes = 0;  // tensor memory
  int64_t rss_bytes = 0;
  double loss = 0.0, learning_rate = 0.0, grad_norm = 0.0;
  uint32_t flags = 0;  // StepFlag bits
};
enum StepFlag : uint32_t {
  kStepSkipped = 1,
  kStepRetriedPrecision = 2,
  kStepSplitForMemory = 4,
  kStepAfterResume = 8,
  kStepUntimed = 16
};

using FieldValue = std::variant<bool, int64_t, double, std::string>;
using FieldList = std::vector<std::pair<std::string, FieldValue>>;

// Writes a run. Not for several threads except event(), which any thread may call. Opening throws DiskError; what
// cannot be written later waits in memory (measure/kept_writes.h).
class RunWriter {
 public:
  // Creates or (resume) opens the directory and takes the lock; throws ConfigError when another process holds it, or
  // when it exists with a record and `resume` is false. Writes the event "run.started" (or "run.resumed"). `metrics`
  // holds the names that metric() accepts: the standard ones and the task's. `held`: the lock, when it was taken
  // before.
  RunWriter(const std::filesystem::path& directory, bool resume, MetricTable metrics = standard_metrics(),
            std::optional<RunLock> held = std::nullopt);
  ~RunWriter();

  void write_config(const std::string& resolved_yaml);
  void write_machine(const MachineFacts& facts);
  // Buffered; written every 64 rows or 1 s, and by flush().
  void step(const StepRow& row);
  // E.g. "guard.nan", "checkpoint.saved"; written at once.
  void event(const std::string& kind, const FieldList& fields);
  // Names must be in the metric table; one write for all of a step.
  void metrics(int64_t step, const std::map<std::string, double>& values);
  void metric(int64_t step, const std::string& name, double value);
  void flush();  // to the kernel: survives a kill of this process; tries again what waited
  void sync();   // and to the disk: survives a power cut
  const std::filesystem::path& directory() const;
  const RunLock& lock() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// `base`/`name`/2026-11-15_20-01-02 (name may be empty), with -2, -3, ... when that exists: the default of --run-dir.
std::filesystem::path dated_run_directory(const std::filesystem::path& base, const std::string& name);
// True when the directory holds a run record (steps.bin).
bool has_run_record(const std::filesystem::path& directory);

struct Event {
  std::string time, kind;
  FieldList fields;
  const FieldValue* find(std::string_view name) const;
};
struct MetricPoint {
  int64_t step;
  std::string name;
  double value;
};

struct RunRecord {
  std::filesystem::path directory;
  int version = 0;
  std::string config_yaml;  // empty when absent
  std::string machine_json;
  std::vector<StepRow> steps;  // in file order; a resumed run repeats no step: later rows win
  std::vector<Event> events;
  std::vector<MetricPoint> metrics;
  std::vector<std::string> warnings;  // "steps.bin: 13 bytes of a torn row dropped"
};
// Throws DataError when the directory is no run record or has a version we do not know.
RunRecord read_run(const std::filesystem::path& directory);

}  // namespace redline::measure
