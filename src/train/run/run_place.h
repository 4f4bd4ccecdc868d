// Where a run is written: the directory that was named, an unfinished run of the same job, or a new one.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "measure/run_lock.h"
#include "train/job.h"

namespace redline::train {

// The directory of a run before anything is written in it. What was made for it goes again with the object when the job
// is refused.
class RunPlace {
 public:
  // --run-dir or exp_dir: that directory. Otherwise the newest runs/NAME/DATE that belongs to this job
  // (Job::request_hash), has not come to its end and is held by nobody; else (or with new_run) a new one. Made where it
  // is missing and locked from now on, so that starts in the same second cannot take the same. Throws ConfigError when
  // the named directory is in use, DiskError.
  static RunPlace choose(const Job& job);
  RunPlace(RunPlace&&) = default;
  ~RunPlace();

  const std::filesystem::path& directory() const { return directory_; }
  bool existed() const { return existed_; }
  bool found() const { return found_; }  // by its job, not by its path
  // The run begins: what was made stays. Hands over the lock, when there is one.
  std::optional<measure::RunLock> keep();

 private:
  RunPlace() = default;
  // With its parents; false when it was there, made by another process at the last moment perhaps.
  bool make(const std::filesystem::path& directory);

  std::filesystem::path directory_;
  std::optional<measure::RunLock> lock_;
  bool existed_ = false, found_ = false;
  std::vector<std::filesystem::path> made_;  // outermost first
};

}  // namespace redline::train
