// Opens data files that a manifest, tar index or table names, without trusting those names: nothing outside the data
// root (not by `..`, not through a symbolic link), nothing but regular files (a FIFO would block, a device has no end).
// Absolute names are followed only when allowed: fine for a manifest the user wrote, wrong for one that came with a
// download. Threads: open() may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace redline::data {

// An open regular file, read-only. Moves; closes itself. Read with pread, never mapped: a mapped file that another
// process cuts short ends this one with SIGBUS.
class DataFile {
 public:
  DataFile() = default;
  DataFile(int fd, uint64_t size, int64_t mtime_ns) : fd_(fd), size_(size), mtime_ns_(mtime_ns) {}
  DataFile(DataFile&& other) noexcept;
  DataFile& operator=(DataFile&& other) noexcept;
  ~DataFile();

  int fd() const { return fd_; }
  uint64_t size() const { return size_; }
  int64_t mtime_ns() const { return mtime_ns_; }
  // Fills `out` from `offset`; false when the file ends before (truncated meanwhile) or the disk fails. Any thread.
  bool read_at(uint64_t offset, std::span<std::byte> out) const;
  // Whole file into a reused buffer; false as above, or when it is larger than `limit_bytes`.
  bool read_all(std::vector<std::byte>& buffer, uint64_t limit_bytes = uint64_t{1} << 31) const;

 private:
  int fd_ = -1;
  uint64_t size_ = 0;
  int64_t mtime_ns_ = 0;
};

enum class OpenProblem : uint8_t {
  Missing,
  NoPermission,
  OutsideRoot,
  AbsoluteRefused,
  NotRegular,
  BadName,
  SystemError
};
struct OpenFailure {
  OpenProblem problem = OpenProblem::Missing;
  std::string reason;  // one sentence, names the path
  // An attempt to reach what the data set does not own, rather than a lost file.
  bool refused() const {
    return problem == OpenProblem::OutsideRoot || problem == OpenProblem::AbsoluteRefused ||
           problem == OpenProblem::NotRegular || problem == OpenProblem::BadName;
  }
};
using OpenResult = std::variant<DataFile, OpenFailure>;

class PathGuard {
 public:
  // `base` is what relative names are relative to (the manifest's folder); it must lie within `root`. Throws DataError
  // when either is not a directory or base is outside.
  PathGuard(const std::filesystem::path& root, const std::filesystem::path& base, bool allow_absolute);
  PathGuard(const std::filesystem::path& root, bool allow_absolute) : PathGuard(root, root, allow_absolute) {}
  ~PathGuard();
  PathGuard(const PathGuard&) = delete;
  PathGuard& operator=(const PathGuard&) = delete;

  OpenResult open(std::string_view name) const;
  const std::filesystem::path& root() const { return root_; }

 private:
  OpenResult open_relative(const std::string& name) const;
  OpenResult open_checked(const std::string& path, bool must_be_inside) const;

  std::filesystem::path root_, base_;  // real paths
  std::string base_in_root_;           // "" or "a/b/"
  bool allow_absolute_ = false;
  int root_fd_ = -1;
};

// A file the user named on the command line or in a recipe: no root, but still a regular file. Throws DataError.
DataFile open_user_file(const std::filesystem::path& path);

}  // namespace redline::data
