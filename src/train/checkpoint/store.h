// Checkpoint generations of one run: saved whole or not at all, found again by verifying, never overwritten in place.
//   checkpoints/step-00012000/{model.safetensors, optimizer.safetensors, state.json, MANIFEST.json}
//   (docs/checkpoints.md)
// "Latest" is derived: the newest directory whose manifest verifies. There is no link that could dangle.
//
// Threads: all calls from one thread (the loop's); the writer thread is inside. Decisions (when, what to keep) are pure
// functions in interval.h and retention.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/file_ops.h"
#include "measure/run_record.h"
#include "train/checkpoint/block_reader.h"
#include "train/checkpoint/options.h"
#include "train/files/safetensors.h"

namespace redline::train {

// A view when saving (tensors are not copied until the snapshot), owned memory when loaded.
struct CheckpointState {
  NamedTensors model;      // parameters and buffers under the reference project's names
  NamedTensors optimizer;  // any names; may be empty
  std::string state_json;  // the loop's own: position, random state, schedule, scaler, EMA, switches, config hash
};

struct GenerationInfo {
  std::filesystem::path path;
  int64_t step = 0;
  std::optional<double> metric;  // of `monitor` at that step
};

struct LoadedCheckpoint {
  GenerationInfo info;
  CheckpointState state;
};

struct SaveReport {
  int64_t step = 0;
  double stall_seconds =
      0;  // what the loop waited: the rest of the previous write, and the snapshot (or the whole write)
  double write_seconds = 0;  // of the last *finished* write, in the writer thread
  uint64_t bytes = 0;        // of this state
  bool written = true;       // false: this step was already on disk, or (sync) the write failed and training goes on
};

class CheckpointStore {
 public:
  // Kinds: checkpoint.saved (step, path, bytes, stall_seconds, write_seconds), checkpoint.damaged (path, file, block,
  // reason), checkpoint.quarantined, checkpoint.removed, checkpoint.retried, checkpoint_degraded. May be called from
  // the writer thread (RunWriter::event allows it).
  using EventSink = std::function<void(const std::string& kind, const measure::FieldList& fields)>;

  // Makes `directory` when missing: for the process that trains; readers use loading.h. Leftovers of interrupted saves
  // are removed by the first save.
  CheckpointStore(std::filesystem::path directory, CheckpointConfig config, EventSink events = {},
                  FileOps& ops = posix_file_ops());
  ~CheckpointStore();  // waits for the writer; never throws

  // Saves at a step boundary. Async when config.async: returns after copying the state into reused buffers; a write
  // still running is waited for first (ask busy() to skip a save instead). A step that is already on disk and verifies
  // is not written again. Disk errors: the temporary directory is abandoned and the state is written once more to new
  // files; when that fails too, on_error "warn" logs, emits checkpoint_degraded and sets degraded(), "stop" throws
  // DiskError (async: from the next call).
  SaveReport save(const CheckpointState& state, int64_t step, std::optional<double> metric = std::nullopt);
  SaveReport save_sync(const CheckpointState& state, int64_t step, std::optional<double> metric = std::nullopt);
  bool busy() const;
  void wait();  // until the last save is durable (or has failed)
  // True once a generation could not be written and none has been written since; the program then ends with exit
  // code 7.
  bool degraded() const;

  // Seconds of the last save as the loop saw them and as the disk took them: inputs of the interval policy. 0 before
  // the first.
  double last_stall_seconds() const;
  double last_write_seconds() const;
  // Of the writer thread, on a core: what a busy machine can lose to it (IntervalInput::slowdown_seconds).
  double last_write_cpu_seconds() const;

  // The newest generation that verifies (sizes, CRC32C of every block), and adopt(). nullopt when there is no
  // generation at all; CheckpointError when there are only damaged ones, which then stay as they are. For reading
  // alone: loading.h.
  std::optional<LoadedCheckpoint> load_newest();
  // This run trains on from `loaded`, found by newest_whole: the damaged ones before it are named (log and event) and
  // renamed to quarantine-step-….
  void adopt(const LoadedCheckpoint& loaded, const std::vector<std::pair<std::filesystem::path, Damage>>& damaged);
  // One generation directory, or a plain .safetensors file (weights only). Throws CheckpointError naming file and
  // block.
  static LoadedCheckpoint load(const std::filesystem::path& path);
  // The best by metric among those kept, as `config.mode` says; nullopt when none has a metric.
  std::optional<GenerationInfo> best() const;
  // Generations whose manifest can be read, oldest first; contents are not verified.
  std::vector<GenerationInfo> list() const;

  // Before training on from an older generation: later ones are renamed to superseded-step-…, so that "newest" stays
  // true.
  void set_aside_after(int64_t step);
  // Removes every generation: a trial that begins again from another state.
  void forget();

  const std::filesystem::path& directory() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redline::train
