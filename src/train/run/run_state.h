// RUN/run.json: the three facts about a run that a later start must know without reading its record: which job it is,
// whether it ever had a checkpoint, and whether it came to its end. Written whole and durably (docs/formats.md).
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

namespace redline::train {

inline constexpr const char* kRunStateName = "run.json";

struct RunState {
  std::string job;            // Job::request_hash()
  bool checkpointed = false;  // a generation was durable once
  std::string ended;          // the job's own reason to stop; empty: it is running, was stopped, killed or crashed
  bool operator==(const RunState&) const = default;
};

std::string run_state_text(const RunState& state);
// nullopt when there is none or it is not one; DiskError when it cannot be read.
std::optional<RunState> read_run_state(const std::filesystem::path& run);

// True when the directory ever held a checkpoint: by run.json, by the names in checkpoints/, or by the record's events
// (runs of older versions, and folders that were removed by hand). Throws DiskError.
bool ever_had_checkpoint(const std::filesystem::path& run);

// The file of the run that is being trained. Any thread may call; a disk that cannot take it is a warning, and the next
// call tries again.
class RunStateFile {
 public:
  // Writes it when it differs from what is there. Throws DiskError.
  RunStateFile(std::filesystem::path run, RunState state);
  void checkpointed();
  void ended(const std::string& why);

 private:
  void write_or_warn();

  std::filesystem::path run_;
  std::mutex mutex_;
  RunState state_, written_;
};

}  // namespace redline::train
