// A run whose directory is taken away while it trains: it must not write into whatever stands at that path now, and the
// state in memory must not be lost.
#pragma once

#include <filesystem>

#include "core/error.h"
#include "core/file_ops.h"
#include "measure/run_lock.h"
#include "train/checkpoint/store.h"

namespace redline::train {

// The run directory was removed, moved or replaced. Not a DiskError: the rules for a save that fails (once more, then
// train on) do not hold for it.
struct RunMovedError : Error {
  explicit RunMovedError(const std::filesystem::path& run);
};
void require_in_place(const measure::RunLock& lock, const std::filesystem::path& run);  // throws RunMovedError

// Asks before everything that gives a name in the run directory: a save that began before the directory was replaced
// does not end in the new one. What is between the question and the rename are microseconds.
class InPlaceFileOps final : public FileOps {
 public:
  InPlaceFileOps(FileOps& inner, const measure::RunLock& lock, std::filesystem::path run)
      : inner_(inner), lock_(lock), run_(std::move(run)) {}
  std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override;
  void make_directory(const std::filesystem::path& path) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void remove(const std::filesystem::path& path) override { inner_.remove(path); }
  void sync_directory(const std::filesystem::path& path) override { inner_.sync_directory(path); }

 private:
  FileOps& inner_;
  const measure::RunLock& lock_;
  std::filesystem::path run_;
};

// Writes the state to RUN.rescue-PID, or to the temporary directory when that cannot be made: a directory that
// --run-dir, --resume and eval take. Throws DiskError that names it, always.
[[noreturn]] void rescue(const std::filesystem::path& run, const std::string& config_yaml, const std::string& job,
                         const CheckpointState& state, int64_t step);

}  // namespace redline::train
