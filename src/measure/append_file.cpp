// O_APPEND keeps each write at the end even if another descriptor is open; the size is tracked because the run's lock
// makes us the only writer.
#include "measure/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/strings.h"
#include "measure/faults.h"

namespace redline::measure {

void throw_disk_error(const std::string& doing, const std::filesystem::path& path, int error) {
  std::string next = "Check the path and its permissions, or choose another --run-dir.";
  if (error == ENOSPC || error == EDQUOT)
    next = "Free space there or choose another --run-dir; what was written before is intact.";
  if (error == EFBIG) next = "Raise the limit on the size of files (ulimit -f); what was written before is intact.";
  if (error == EROFS || error == EACCES || error == EPERM) next = "Choose a --run-dir that you may write to.";
  throw DiskError(doing + " '" + printable(path.string()) + "' failed: " + std::strerror(error) + ". " + next);
}

AppendFile::AppendFile(const std::filesystem::path& path, const char* point) : path_(path), point_(point) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) throw_disk_error("Opening", path_, errno);
  struct stat info {};
  if (::fstat(fd_, &info) != 0) {
    const int error = errno;
    ::close(fd_);
    throw_disk_error("Opening", path_, error);
  }
  size_ = info.st_size;
}

AppendFile::~AppendFile() { ::close(fd_); }

void AppendFile::append(std::string_view bytes) {
  if (torn_) {  // the half that could not be cut off then must go before anything follows it
    if (::ftruncate(fd_, size_) != 0) throw_disk_error("Cutting the torn end of", path_, errno);
    torn_ = false;
  }
  size_t done = 0;
  int error = faults::take(point_) ? ENOSPC : 0;
  while (error == 0 && done < bytes.size()) {
    const ssize_t put = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) error = errno;
    if (put == 0) error = ENOSPC;
    if (put > 0) done += static_cast<size_t>(put);
  }
  if (error != 0) {
    torn_ = done > 0 && ::ftruncate(fd_, size_) != 0;
    throw_disk_error("Writing", path_, error);
  }
  size_ += static_cast<int64_t>(bytes.size());
}

void AppendFile::truncate(int64_t bytes) {
  if (bytes == size_ && !torn_) return;
  if (::ftruncate(fd_, bytes) != 0) throw_disk_error("Cutting the torn end of", path_, errno);
  size_ = bytes;
  torn_ = false;
}

void AppendFile::sync() {
  if (::fdatasync(fd_) != 0) throw_disk_error("Syncing", path_, errno);
}

}  // namespace redline::measure
