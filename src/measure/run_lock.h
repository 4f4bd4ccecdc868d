// One process per run directory. The kernel drops the lock when its holder ends, however it ends, so there is no stale
// lock to remove.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace redline::measure {

class RunLock {
 public:
  // Takes `directory`/lock and announces; throws ConfigError naming the process that holds it, DiskError when the file
  // can not be made.
  explicit RunLock(const std::filesystem::path& directory);
  // The same without a byte written, for somebody who may still refuse to work in there: a lock file that was not there
  // goes again with an unannounced lock.
  static RunLock quietly(const std::filesystem::path& directory);
  // nullopt when another process holds it, with its name in `holder`.
  static std::optional<RunLock> if_free(const std::filesystem::path& directory, std::string& holder);

  RunLock(RunLock&& other) noexcept;
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

  void announce();  // writes who we are into the file
  // False when the path no longer leads to what was locked: the directory (or the file in it) was removed, moved or
  // replaced, so another process may hold what is there now. One stat(2); one that fails for other reasons tells
  // nothing.
  bool in_place() const;

 private:
  RunLock() = default;

  std::filesystem::path path_;
  int fd_ = -1;
  bool remove_again_ = false;
};

}  // namespace redline::measure
