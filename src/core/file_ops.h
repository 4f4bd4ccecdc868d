// The only door to durable writes. Everything that must survive a crash (checkpoints, cards, caches) goes through
// FileOps, so that tests can record each operation, replay every crash state, and inject errors at any of them. fsync
// is never retried on the same descriptor: after a failure the kernel may have dropped the pages.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace redline {

// One file being written. Errors throw DiskError with path, operation and reason.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;
  virtual void sync() = 0;
  virtual void close() = 0;
};

class FileOps {
 public:
  virtual ~FileOps() = default;
  virtual std::unique_ptr<WritableFile> create(const std::filesystem::path& path) = 0;  // truncates
  virtual void make_directory(const std::filesystem::path& path) = 0;                   // with parents
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual void remove(const std::filesystem::path& path) = 0;  // a file or an empty directory; missing is fine
  virtual void sync_directory(const std::filesystem::path& path) = 0;
};

FileOps& posix_file_ops();

// Temporary file beside `path`, filled by `fill`, fsync, rename over it, fsync of the directory.
void write_file_atomic(const std::filesystem::path& path, const std::function<void(WritableFile&)>& fill,
                       FileOps& ops = posix_file_ops());
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes, FileOps& ops = posix_file_ops());

// Whole file; throws DiskError when it cannot be read or is larger than the limit.
std::string read_file(const std::filesystem::path& path, size_t limit_bytes = SIZE_MAX);

}  // namespace redline
