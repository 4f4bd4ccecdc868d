// Opening goes through openat2(RESOLVE_BENEATH) where the kernel has it, so that the check and the open are one step.
// It refuses every absolute symbolic link, also those that stay inside the root (common in data folders), so a refusal
// is looked at again by name: the file is pinned with O_PATH and its real path compared before it is opened for
// reading.
#include "data/files/path_guard.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "core/error.h"

namespace redline::data {

namespace {

class ScopedFd {
 public:
  explicit ScopedFd(int fd) : fd_(fd) {}
  ~ScopedFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  ScopedFd(const ScopedFd&) = delete;
  ScopedFd& operator=(const ScopedFd&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

std::string errno_text(int code) { return std::error_code(code, std::generic_category()).message(); }

const char* file_kind(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a symbolic link that cannot be followed";
  return "of an unknown kind";
}

OpenFailure failure_of_errno(int code, const std::string& path) {
  switch (code) {
    case ENOENT:
    case ENOTDIR:
      return {OpenProblem::Missing, "there is no file '" + path + "'"};
    case EACCES:
    case EPERM:
      return {OpenProblem::NoPermission, "no permission to read '" + path + "'"};
    case ENXIO:
      return {OpenProblem::NotRegular, "'" + path + "' is a socket or device, not a regular file"};
    case ELOOP:
      return {OpenProblem::Missing, "'" + path + "' is a loop of symbolic links"};
    case ENAMETOOLONG:
      return {OpenProblem::BadName, "the name '" + path.substr(0, 80) + "...' is too long"};
    default:
      return {OpenProblem::SystemError, "'" + path + "' cannot be opened: " + errno_text(code)};
  }
}

// The last check before a descriptor is handed out.
OpenResult accept_regular(ScopedFd& fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return failure_of_errno(errno, path);
  if (!S_ISREG(status.st_mode)) {
    return OpenFailure{OpenProblem::NotRegular,
                       "'" + path + "' is " + file_kind(status.st_mode) + ", not a regular file"};
  }
  const int64_t mtime_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  return DataFile(fd.release(), static_cast<uint64_t>(status.st_size), mtime_ns);
}

std::optional<std::string> real_path_of(int fd) {
  std::array<char, 4096> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
  if (length <= 0 || static_cast<size_t>(length) == target.size()) return std::nullopt;
  return std::string(target.data(), static_cast<size_t>(length));
}

bool is_inside(const std::string& path, const std::string& root) {
  if (root == "/") return true;
  return path.size() > root.size() && path.compare(0, root.size(), root) == 0 && path[root.size()] == '/';
}

std::filesystem::path real_directory(const std::filesystem::path& path) {
  std::error_code code;
  const auto real = std::filesystem::canonical(path.empty() ? "." : path, code);
  if (code || !std::filesystem::is_directory(real, code)) {
    throw DataError("The data folder '" + path.string() +
                    "' does not exist or is not a folder. Check the path in the recipe.");
  }
  return real;
}

}  // namespace

DataFile::DataFile(DataFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), size_(other.size_), mtime_ns_(other.mtime_ns_) {}

DataFile& DataFile::operator=(DataFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(mtime_ns_, other.mtime_ns_);
  return *this;
}

DataFile::~DataFile() {
  if (fd_ >= 0) ::close(fd_);
}

bool DataFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  if (offset > static_cast<uint64_t>(INT64_MAX)) return false;
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
  return true;
}

bool DataFile::read_all(std::vector<std::byte>& buffer, uint64_t limit_bytes) const {
  if (size_ > limit_bytes) return false;
  // resize() of a grown vector zeroes only what is new, and a reused buffer soon stops growing.
  buffer.resize(static_cast<size_t>(size_));
  return read_at(0, buffer);
}

PathGuard::PathGuard(const std::filesystem::path& root, const std::filesystem::path& base, bool allow_absolute)
    : root_(real_directory(root)), base_(real_directory(base)), allow_absolute_(allow_absolute) {
  if (base_ != root_) {
    if (!is_inside(base_.string(), root_.string())) {
      throw DataError("The folder '" + base_.string() + "' lies outside the data root '" + root_.string() +
                      "'. Name a data root that holds both the manifest and its files.");
    }
    base_in_root_ = base_.lexically_relative(root_).string() + "/";
  }
  root_fd_ = ::open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root_fd_ < 0)
    throw DataError("The data folder '" + root_.string() + "' cannot be opened: " + errno_text(errno) + ".");
}

PathGuard::~PathGuard() {
  if (root_fd_ >= 0) ::close(root_fd_);
}

OpenResult PathGuard::open(std::string_view name) const {
  if (name.empty()) return OpenFailure{OpenProblem::BadName, "the file name is empty"};
  if (name.find('\0') != std::string_view::npos)
    return OpenFailure{OpenProblem::BadName, "the file name holds a zero byte"};
  const std::string text(name);
  if (text.front() != '/') return open_relative(text);
  if (!allow_absolute_) {
    return OpenFailure{OpenProblem::AbsoluteRefused, "'" + text + "' is an absolute path; here only paths below '" +
                                                         root_.string() + "' are read (allow_absolute)"};
  }
  return open_checked(text, /*must_be_inside=*/false);
}

OpenResult PathGuard::open_relative(const std::string& name) const {
  const std::string below_root = base_in_root_ + name;
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  ScopedFd fd(static_cast<int>(::syscall(SYS_openat2, root_fd_, below_root.c_str(), &how, sizeof(how))));
  const int code = errno;
  if (fd.get() >= 0) return accept_regular(fd, name);
  if (code == EXDEV || code == ENOSYS || code == EPERM || code == EAGAIN || code == EINVAL) {
    return open_checked((root_ / below_root).string(), /*must_be_inside=*/true);
  }
  OpenFailure failure = failure_of_errno(code, name);
  if (failure.problem == OpenProblem::Missing) failure.reason += " in '" + base_.string() + "'";
  return failure;
}

OpenResult PathGuard::open_checked(const std::string& path, bool must_be_inside) const {
  ScopedFd pinned(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (pinned.get() < 0) return failure_of_errno(errno, path);
  if (must_be_inside) {
    const auto real = real_path_of(pinned.get());
    if (!real || !is_inside(*real, root_.string())) {
      return OpenFailure{OpenProblem::OutsideRoot,
                         "'" + path + "' leads out of the data root '" + root_.string() + "'"};
    }
  }
  struct stat status {};
  if (::fstat(pinned.get(), &status) != 0) return failure_of_errno(errno, path);
  if (!S_ISREG(status.st_mode)) {
    return OpenFailure{OpenProblem::NotRegular,
                       "'" + path + "' is " + file_kind(status.st_mode) + ", not a regular file"};
  }
  ScopedFd fd(::open(("/proc/self/fd/" + std::to_string(pinned.get())).c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return failure_of_errno(errno, path);
  return accept_regular(fd, path);
}

DataFile open_user_file(const std::filesystem::path& path) {
  ScopedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  OpenResult result =
      fd.get() < 0 ? OpenResult(failure_of_errno(errno, path.string())) : accept_regular(fd, path.string());
  if (auto* failure = std::get_if<OpenFailure>(&result)) {
    std::error_code failed;
    const auto folder = std::filesystem::absolute(path, failed).lexically_normal().parent_path();
    const bool missing = failure->problem == OpenProblem::Missing && !path.is_absolute() && !failed;
    throw DataError("A data file cannot be read: " + failure->reason +
                    (missing ? " (looked for in '" + folder.string() + "')." : "."));
  }
  return std::move(std::get<DataFile>(result));
}

}  // namespace redline::data
