// POSIX files behind FileOps, and the two whole-file helpers. Every failure names path, operation and reason, and what
// to do.
#include "core/file_ops.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "core/error.h"
#include "core/strings.h"

namespace redline {

namespace {

const char* disk_advice(int code) {
  switch (code) {
    case ENOSPC:
    case EDQUOT:
      return "free space there or choose another directory";
    case EROFS:
    case EACCES:
    case EPERM:
      return "choose a directory you may write to, or change its permissions";
    case ENOENT:
      return "check the path";
    case EISDIR:
    case ENOTDIR:
      return "check the path: a file and a directory are mixed up";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EIO:
      return "the disk reports a hardware or network error; check it before going on";
    case EEXIST:
    case ENOTEMPTY:
      return "remove what is in the way or choose another path";
    default:
      return "check the path and the disk";
  }
}

[[noreturn]] void throw_disk_error(const char* operation, const std::filesystem::path& path, int code) {
  throw DiskError(std::string("Cannot ") + operation + " '" + printable(path.string()) +
                  "': " + std::generic_category().message(code) + "; " + disk_advice(code) + ".");
}

// Past so many bytes a file goes around the page cache: a checkpoint is written once and hardly ever read, and copying
// it into the cache, writing it back and freeing it again took more of a core than its checksums.
constexpr size_t kDirectFrom = size_t{8} << 20, kDirectPiece = size_t{4} << 20, kDirectAlign = 4096;

class PosixFile final : public WritableFile {
 public:
  explicit PosixFile(std::filesystem::path path) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    if (descriptor_ < 0) throw_disk_error("create", path_, errno);
  }
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;
  ~PosixFile() override {
    if (descriptor_ >= 0) ::close(descriptor_);  // an abandoned file: its writer has already thrown
  }

  void write(std::span<const std::byte> bytes) override {
    require_usable("write");
    if (piece_ == nullptr && !direct_refused_ && written_ + bytes.size() >= kDirectFrom) {
      const std::span<const std::byte> head =
          bytes.first(std::min(bytes.size(), (kDirectAlign - written_ % kDirectAlign) % kDirectAlign));
      put(head);
      bytes = bytes.subspan(head.size());
      begin_direct();
    }
    if (piece_ == nullptr) return put(bytes);
    while (!bytes.empty()) {
      if (held_ == 0 && is_aligned(bytes)) {  // as it lies in memory, without a copy
        const size_t whole = bytes.size() / kDirectAlign * kDirectAlign;
        put(bytes.first(whole));
        bytes = bytes.subspan(whole);
        continue;
      }
      const size_t part = std::min(bytes.size(), kDirectPiece - held_);
      std::memcpy(piece_.get() + held_, bytes.data(), part);
      held_ += part;
      bytes = bytes.subspan(part);
      if (held_ == kDirectPiece) put_held();
    }
  }

  void sync() override {
    require_usable("flush");
    end_direct();
    if (::fsync(descriptor_) != 0) fail("flush", errno);
  }

  void close() override {
    require_usable("close");
    end_direct();
    const int code = ::close(descriptor_) == 0 ? 0 : errno;
    descriptor_ = -1;
    if (code != 0 && code != EINTR) fail("close", code);  // Linux has closed it even when it says EINTR
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  static bool is_aligned(std::span<const std::byte> bytes) {
    return bytes.size() >= kDirectAlign && reinterpret_cast<uintptr_t>(bytes.data()) % kDirectAlign == 0;
  }

  void put(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t wrote = ::write(descriptor_, bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30));
      if (wrote < 0) {
        if (errno == EINTR) continue;
        if (errno == EINVAL && set_direct(false)) continue;  // this file system wants another alignment
        fail("write", errno);
      }
      written_ += static_cast<size_t>(wrote);
      bytes = bytes.subspan(static_cast<size_t>(wrote));
      // A short write has left the alignment; the rest goes through the cache.
      if (!bytes.empty() && written_ % kDirectAlign != 0) set_direct(false);
    }
  }

  // True when the mode changed.
  bool set_direct(bool on) {
    const int flags = ::fcntl(descriptor_, F_GETFL);
    const bool is_on = flags >= 0 && (flags & O_DIRECT) != 0;
    return flags >= 0 && is_on != on && ::fcntl(descriptor_, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
  }

  void begin_direct() {
    if (written_ % kDirectAlign == 0 && set_direct(true))
      piece_.reset(static_cast<std::byte*>(std::aligned_alloc(kDirectAlign, kDirectPiece)));
    if (piece_ != nullptr) return;
    direct_refused_ = true;
    set_direct(false);
  }
  void put_held() {
    put({piece_.get(), held_});
    held_ = 0;
  }
  void end_direct() {
    if (piece_ == nullptr) return;
    set_direct(false);  // the last piece is of any length
    put_held();
    piece_.reset();
    direct_refused_ = true;
  }

  void require_usable(const char* operation) const {
    if (descriptor_ < 0) throw_disk_error(operation, path_, EBADF);
    if (failed_) throw_disk_error(operation, path_, EIO);  // never retried: the kernel may have dropped the pages
  }
  [[noreturn]] void fail(const char* operation, int code) {
    failed_ = true;
    throw_disk_error(operation, path_, code);
  }

  std::filesystem::path path_;
  int descriptor_ = -1;
  bool failed_ = false, direct_refused_ = false;
  size_t written_ = 0, held_ = 0;
  std::unique_ptr<std::byte, Free> piece_;
};

class PosixFileOps final : public FileOps {
 public:
  std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override {
    return std::make_unique<PosixFile>(path);
  }

  void make_directory(const std::filesystem::path& path) override {
    std::error_code code;
    std::filesystem::create_directories(path, code);
    if (!code && !std::filesystem::is_directory(path, code)) code = std::make_error_code(std::errc::not_a_directory);
    if (code) throw_disk_error("create the directory", path, code.value());
  }

  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) throw_disk_error("put in place", to, errno);
  }

  void remove(const std::filesystem::path& path) override {
    std::error_code code;
    std::filesystem::remove(path, code);
    if (code) throw_disk_error("remove", path, code.value());
  }

  void sync_directory(const std::filesystem::path& path) override {
    const int descriptor = ::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) throw_disk_error("open the directory", path, errno);
    const int code = ::fsync(descriptor) == 0 ? 0 : errno;
    ::close(descriptor);
    // Some network file systems have no fsync of directories and say EINVAL: their rename is as durable as it gets.
    if (code != 0 && code != EINVAL && code != ENOTSUP) throw_disk_error("flush the directory", path, code);
  }
};

}  // namespace

FileOps& posix_file_ops() {
  static PosixFileOps ops;
  return ops;
}

void write_file_atomic(const std::filesystem::path& path, const std::function<void(WritableFile&)>& fill,
                       FileOps& ops) {
  static std::atomic<uint64_t> counter{0};
  std::filesystem::path temporary = path;
  temporary += ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
  try {
    const std::unique_ptr<WritableFile> file = ops.create(temporary);
    fill(*file);
    file->sync();
    file->close();
    ops.rename(temporary, path);
  } catch (...) {
    try {
      ops.remove(temporary);
    } catch (const DiskError&) {  // the first error is the one to report
    }
    throw;
  }
  const std::filesystem::path parent = path.parent_path();
  ops.sync_directory(parent.empty() ? std::filesystem::path(".") : parent);
}

void write_file_atomic(const std::filesystem::path& path, std::string_view bytes, FileOps& ops) {
  write_file_atomic(
      path, [&](WritableFile& file) { file.write(std::as_bytes(std::span(bytes.data(), bytes.size()))); }, ops);
}

std::string read_file(const std::filesystem::path& path, size_t limit_bytes) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw_disk_error("read", path, errno);
  struct Closer {
    int descriptor;
    ~Closer() { ::close(descriptor); }
  } closer{descriptor};
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) throw_disk_error("read", path, errno);
  if (S_ISDIR(facts.st_mode)) throw_disk_error("read", path, EISDIR);

  // The size is only a hint: pipes have none and a file may grow while it is read.
  std::string bytes;
  size_t room = S_ISREG(facts.st_mode) && facts.st_size > 0 ? static_cast<size_t>(facts.st_size) + 1 : 65536;
  if (limit_bytes != SIZE_MAX) room = std::min(room, limit_bytes + 1);
  size_t size = 0;
  while (true) {
    bytes.resize(std::max(room, size + 1));
    const ssize_t got = ::read(descriptor, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_disk_error("read", path, errno);
    size += static_cast<size_t>(got);
    if (size > limit_bytes) {
      throw DiskError("'" + printable(path.string()) + "' is larger than the limit of " + format_bytes(limit_bytes) +
                      " for this kind of file; check that it is the file you meant.");
    }
    if (got == 0) break;
    if (size == bytes.size()) room = size + std::max<size_t>(size / 2, 65536);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace redline
