// Reads with O_DIRECT where the file system allows it, otherwise after asking the kernel to drop the file's pages;
// either way a second run gives the disk's figure again, not the page cache's.
#include "device/disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/philox.h"
#include "core/strings.h"
#include "core/time.h"
#include "device/host/mounts.h"
#include "device/host/proc_text.h"

namespace redline::device {
namespace {

constexpr size_t kChunkBytes = size_t{4} << 20;
constexpr size_t kAlignment = 4096;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

struct FreeBuffer {
  void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<void, FreeBuffer>;

Buffer aligned_buffer(size_t bytes) {
  Buffer buffer(std::aligned_alloc(kAlignment, bytes));
  if (!buffer)
    throw OutOfMemoryError("Not enough memory for a buffer of " + format_bytes(bytes) + " to measure the disk with.");
  return buffer;
}

// A file without a name in `folder`, filled with bytes that do not compress, synced. Returns its size; 0 when nothing
// could be written.
uint64_t fill_temporary(int fd, const DiskOptions& options) {
  const Buffer buffer = aligned_buffer(kChunkBytes);
  const std::span<uint64_t> words(static_cast<uint64_t*>(buffer.get()), kChunkBytes / sizeof(uint64_t));
  KeyedStream noise(0, 0, 0, 0);
  for (uint64_t& word : words) word = noise.next_u64();
  const int64_t begin = now_ns();
  uint64_t written = 0;
  while (written < options.largest_bytes && seconds_between(begin, now_ns()) < options.seconds) {
    words[0] = written;
    const ssize_t put = ::write(fd, buffer.get(), kChunkBytes);
    if (put != static_cast<ssize_t>(kChunkBytes)) break;  // full disk: measure what fitted
    written += kChunkBytes;
    // Without this the dirty pages pile up and the final sync would take far longer than the limit.
    if (written % (8 * kChunkBytes) == 0 && ::fdatasync(fd) != 0) break;
  }
  if (::ftruncate(fd, static_cast<off_t>(written)) != 0 || ::fdatasync(fd) != 0) return 0;
  return written;
}

int open_unnamed(const std::filesystem::path& folder) {
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  std::string name = (folder / ".redline-disk-XXXXXX").string();
  fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd >= 0) ::unlink(name.c_str());
  return fd;
}

// The largest regular file among the first entries below `folder`; a bounded look, since folders of data can hold
// millions.
std::optional<std::filesystem::path> largest_file(const std::filesystem::path& folder) {
  std::optional<std::filesystem::path> best;
  uintmax_t best_bytes = 0;
  int seen = 0;
  std::error_code error;
  using Walk = std::filesystem::recursive_directory_iterator;
  for (Walk it(folder, std::filesystem::directory_options::skip_permission_denied, error); !error && it != Walk();
       it.increment(error)) {
    if (++seen > 2000) break;
    std::error_code unreadable;
    if (!it->is_regular_file(unreadable) || it->is_symlink(unreadable)) continue;
    const uintmax_t bytes = it->file_size(unreadable);
    if (!unreadable && bytes > best_bytes) {
      best_bytes = bytes;
      best = it->path();
    }
  }
  return best;
}

// Sequential bytes per second; counts only whole chunks when reading directly, as O_DIRECT demands aligned lengths.
void read_sequentially(int fd, const DiskOptions& options, DiskFacts& facts) {
  const Buffer buffer = aligned_buffer(kChunkBytes);
  const int64_t begin = now_ns();
  uint64_t total = 0;
  double seconds = 0;
  while (total < options.largest_bytes && seconds < options.seconds) {
    const ssize_t got = ::pread(fd, buffer.get(), kChunkBytes, static_cast<off_t>(total));
    if (got <= 0) break;
    total += static_cast<uint64_t>(got);
    seconds = seconds_between(begin, now_ns());
    if (static_cast<size_t>(got) < kChunkBytes) break;
  }
  facts.bytes_read = total;
  if (total > 0 && seconds > 0) facts.read_gb_per_second = static_cast<double>(total) / seconds * 1e-9;
}

std::optional<double> random_read_time(int fd, uint64_t bytes) {
  constexpr int kReads = 24;
  const uint64_t blocks = bytes / kAlignment;
  if (blocks < 64) return std::nullopt;
  const Buffer buffer = aligned_buffer(kAlignment);
  KeyedStream places(1, 0, 0, 0);
  std::vector<double> seconds;
  for (int i = 0; i < kReads; ++i) {
    const auto block = static_cast<off_t>(places.uniform_int(0, static_cast<int64_t>(blocks) - 1));
    const int64_t begin = now_ns();
    if (::pread(fd, buffer.get(), kAlignment, block * static_cast<off_t>(kAlignment)) <= 0) return std::nullopt;
    seconds.push_back(seconds_between(begin, now_ns()));
  }
  std::nth_element(seconds.begin(), seconds.begin() + kReads / 2, seconds.end());
  return seconds[kReads / 2];
}

// Reads the open file past the page cache and describes how in `facts.how`.
void read_past_cache(int fd, uint64_t bytes, const std::string& what, const DiskOptions& options, DiskFacts& facts) {
  const std::string again = "/proc/self/fd/" + std::to_string(fd);
  const Descriptor direct(::open(again.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  if (direct.valid()) {
    read_sequentially(direct.get(), options, facts);
    if (facts.bytes_read > 0) {
      facts.random_read_seconds = random_read_time(direct.get(), bytes);
      facts.how = "direct reads of " + what;
      return;
    }
  }
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  read_sequentially(fd, options, facts);
  facts.how = facts.filesystem == "tmpfs" ? "reads from memory of " + what
                                          : "reads of " + what + " after dropping its cached pages";
}

std::optional<bool> is_rotational(const Mount& mount, const std::filesystem::path& path) {
  struct stat info {};
  unsigned major_number = static_cast<unsigned>(mount.major), minor_number = static_cast<unsigned>(mount.minor);
  if (major_number == 0 && ::stat(mount.source.c_str(), &info) == 0 && S_ISBLK(info.st_mode)) {  // btrfs and the like
    major_number = major(info.st_rdev);
    minor_number = minor(info.st_rdev);
  } else if (major_number == 0 && ::stat(path.c_str(), &info) == 0) {
    major_number = major(info.st_dev);
    minor_number = minor(info.st_dev);
  }
  const std::filesystem::path device = fmt::format("/sys/dev/block/{}:{}", major_number, minor_number);
  for (const char* place : {"queue/rotational", "../queue/rotational"}) {  // a partition asks its disk
    if (const auto value = proc_number(device / place)) return *value != 0;
  }
  return std::nullopt;
}

void measure_folder(const std::filesystem::path& folder, const DiskOptions& options, DiskFacts& facts) {
  const Descriptor temporary(open_unnamed(folder));
  const uint64_t written = temporary.valid() ? fill_temporary(temporary.get(), options) : 0;
  if (written > 0) {
    read_past_cache(temporary.get(), written, "a temporary file of " + format_bytes(written), options, facts);
    return;
  }
  const auto file = largest_file(folder);
  if (!file) {
    facts.how = "not measured: the folder can not be written and holds no file to read";
    return;
  }
  const Descriptor existing(::open(file->c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!existing.valid()) {
    facts.how = "not measured: " + std::string(std::strerror(errno));
    return;
  }
  std::error_code ignored;
  read_past_cache(existing.get(), std::filesystem::file_size(*file, ignored), printable(file->filename().string()),
                  options, facts);
}

}  // namespace

std::string classify_disk(const std::string& fstype, const std::string& source, std::optional<bool> rotational,
                          std::optional<double> random_read_seconds) {
  for (const char* memory : {"tmpfs", "ramfs", "devtmpfs"}) {
    if (fstype == memory) return "tmpfs";
  }
  for (const char* network :
       {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs",
        "afs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.juicefs"}) {
    if (fstype == network) return "network";
  }
  const bool virtual_disk = starts_with(source, "/dev/vd") || starts_with(source, "/dev/xvd");
  if (rotational && (!virtual_disk || !*rotational)) return *rotational ? "hdd" : "ssd";
  // A rotating disk needs milliseconds to move its head; 2 ms is faster than any head moves.
  constexpr double kHeadSeconds = 2e-3;
  if (random_read_seconds) return *random_read_seconds < kHeadSeconds ? "ssd" : "hdd";
  return "unknown";
}

DiskFacts measure_disk(const std::filesystem::path& path, const DiskOptions& options) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (error) {
    throw DataError("The path '" + printable(path.string()) + "' whose disk should be measured can not be opened (" +
                    error.message() + "); give an existing file or folder with --path.");
  }
  DiskFacts facts;
  const std::vector<Mount> mounts = parse_mountinfo(proc_text("/proc/self/mountinfo"));
  const Mount* mount = mount_of(mounts, real);
  if (mount != nullptr) facts.filesystem = mount->fstype;
  if (std::filesystem::is_directory(real)) {
    measure_folder(real, options, facts);
  } else if (std::filesystem::is_regular_file(real)) {
    const Descriptor file(::open(real.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.valid()) {
      throw DataError("The file '" + printable(real.string()) + "' can not be read (" + std::strerror(errno) +
                      "); check its permissions or give another --path.");
    }
    read_past_cache(file.get(), std::filesystem::file_size(real), printable(real.filename().string()), options, facts);
  } else {
    throw DataError("The path '" + printable(real.string()) +
                    "' is neither a file nor a folder; give one of them with --path.");
  }
  if (mount != nullptr) {
    facts.kind = classify_disk(mount->fstype, mount->source, is_rotational(*mount, real), facts.random_read_seconds);
  }
  return facts;
}

}  // namespace redline::device
