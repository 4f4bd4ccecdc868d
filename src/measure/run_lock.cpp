// flock(2) rather than a file that exists or not: a killed process leaves nothing behind. The text in the file only
// names the holder.
#include "measure/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>

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

}  // namespace

RunLock::RunLock(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "lock";
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw_disk_error("Opening", path, errno);
  int result = 0;
  do {
    result = ::flock(fd_, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    const int error = errno;
    const std::string holder = holder_of(fd_);
    ::close(fd_);
    if (error != EWOULDBLOCK) throw_disk_error("Locking", path, error);
    throw ConfigError("The run directory '" + printable(directory.string()) + "' is in use by " + holder +
                      "; wait for it to end, stop it, or choose another --run-dir.");
  }
  char host[256] = "unknown host";
  ::gethostname(host, sizeof(host) - 1);
  const std::string text = "process " + std::to_string(::getpid()) + " on " + host + " since " + utc_timestamp() + "\n";
  // Only a help for the message above: a full disk must not keep a run from being resumed.
  if (::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, text.data(), text.size(), 0) < 0) {
  }
}

RunLock::~RunLock() { ::close(fd_); }

}  // namespace redline::measure
