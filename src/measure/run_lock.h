// One process per run directory. The kernel drops the lock when its holder ends, however it ends, so there is no stale
// lock to remove.
#pragma once

#include <filesystem>

namespace redline::measure {

class RunLock {
 public:
  // Takes `directory`/lock; throws ConfigError naming the process that holds it, DiskError when the file can not be
  // made.
  explicit RunLock(const std::filesystem::path& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace redline::measure
