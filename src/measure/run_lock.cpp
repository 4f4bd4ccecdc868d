// flock(2) rather than a file that exists or not: a killed process leaves nothing behind. The text in the file only
// names the holder.
#include "measure/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/strings.h"
#include "core/time.h"
#include "measure/append_file.h"

namespace redline::measure {
namespace {

std::string holder_of(int fd) {
  char text[256];
  const ssize_t got = ::pread(fd, text, sizeof(text), 0);
  if (got <= 0) return "another process";
  return printable(trim(std::string_view(text, static_cast<size_t>(got))));
}

// Opens the file, which it makes when it is missing. A link is not followed: one that leads nowhere is neither there
// nor can it be made.
int open_lock(const std::filesystem::path& path, bool& made) {
  for (;;) {
    made = false;
    int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT) {
      fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
      made = fd >= 0;
    }
    if (fd >= 0) return fd;
    if (errno != EEXIST && errno != EINTR) throw_disk_error("Opening", path, errno);
  }
}

}  // namespace

std::optional<RunLock> RunLock::if_free(const std::filesystem::path& directory, std::string& holder) {
  for (;;) {
    RunLock lock;
    lock.path_ = directory / "lock";
    bool made = false;
    lock.fd_ = open_lock(lock.path_, made);
    int result = 0;
    do {
      result = ::flock(lock.fd_, LOCK_EX | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    if (result != 0) {
      if (errno != EWOULDBLOCK) throw_disk_error("Locking", lock.path_, errno);
      holder = holder_of(lock.fd_);
      return std::nullopt;
    }
    if (!lock.in_place()) continue;  // removed between opening and locking: what is there now counts
    lock.remove_again_ = made;
    return lock;
  }
}

RunLock RunLock::quietly(const std::filesystem::path& directory) {
  std::string holder;
  if (auto lock = if_free(directory, holder)) return std::move(*lock);
  throw ConfigError("The run directory '" + printable(directory.string()) + "' is in use by " + holder +
                    "; wait for it to end, stop it, or choose another --run-dir.");
}

RunLock::RunLock(const std::filesystem::path& directory) : RunLock(quietly(directory)) { announce(); }

RunLock::RunLock(RunLock&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      remove_again_(std::exchange(other.remove_again_, false)) {}

RunLock::~RunLock() {
  if (fd_ < 0) return;
  if (remove_again_ && in_place()) ::unlink(path_.c_str());
  ::close(fd_);
}

void RunLock::announce() {
  remove_again_ = false;
  char host[256] = "unknown host";
  ::gethostname(host, sizeof(host) - 1);
  const std::string text = "process " + std::to_string(::getpid()) + " on " + host + " since " + utc_timestamp() + "\n";
  // Only a help for the message above: a full disk must not keep a run from being resumed.
  if (::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, text.data(), text.size(), 0) < 0) {
  }
}

bool RunLock::in_place() const {
  struct stat ours {};
  struct stat there {};
  if (::fstat(fd_, &ours) != 0) return true;
  if (::stat(path_.c_str(), &there) != 0) return errno != ENOENT && errno != ENOTDIR;
  return ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

}  // namespace redline::measure
