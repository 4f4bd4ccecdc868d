// Threads take blocks from a counter; within a block, pieces small enough for the second-level cache are read and
// summed in turn, so the checksum costs arithmetic but hardly any memory traffic.
#include "train/checkpoint/block_reader.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <mutex>
#include <system_error>

#include "core/check.h"
#include "core/cores.h"
#include "core/hash.h"
#include "core/run_threads.h"
#include "core/strings.h"

namespace redline::train {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{256} << 10;

std::string crc_text(uint32_t sum) {
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", sum);
  return text;
}

int reading_threads(int asked, uint64_t blocks) {
  if (asked <= 0) asked = std::min(affinity_cpus(), 8);  // page-cache copies saturate memory before that
  return static_cast<int>(
      std::clamp<uint64_t>(blocks / 8, 1, static_cast<uint64_t>(asked)));  // a thread must be worth its start
}

// The first segment that may reach into [offset, ...).
size_t first_segment(std::span<const FileSegment> segments, uint64_t offset) {
  const auto found = std::partition_point(segments.begin(), segments.end(), [&](const FileSegment& segment) {
    return segment.offset + segment.target.size() <= offset;
  });
  return static_cast<size_t>(found - segments.begin());
}

// Reads the parts of one block into their places; returns its CRC32C when asked to sum.
uint32_t read_block(const InputFile& file, std::span<const FileSegment> segments, uint64_t begin, uint64_t end,
                    bool sum) {
  uint32_t crc = 0;
  for (size_t i = first_segment(segments, begin); i < segments.size() && segments[i].offset < end; ++i) {
    const FileSegment& segment = segments[i];
    uint64_t at = std::max(begin, segment.offset);
    const uint64_t stop = std::min(end, segment.offset + segment.target.size());
    while (at < stop) {
      const uint64_t count = std::min(kPieceBytes, stop - at);
      const auto piece = segment.target.subspan(at - segment.offset, count);
      file.read(at, piece);
      if (sum) crc = crc32c(piece, crc);
      at += count;
    }
  }
  return crc;
}

void require_sum(const InputFile& file, uint64_t block, uint32_t found, uint32_t expected) {
  if (found == expected) return;
  throw DamagedError(
      {file.path(), block, "its CRC32C is " + crc_text(found) + ", the manifest says " + crc_text(expected)});
}

// Calls work(block) from several threads; rethrows the failure of the lowest block among those that were tried.
template <class Work>
void for_each_block(uint64_t first, uint64_t last, int threads, Work work) {
  std::atomic<uint64_t> next{first};
  uint64_t worst = UINT64_MAX;
  std::mutex mutex;
  std::exception_ptr failure;
  auto run = [&] {
    for (uint64_t block = next++; block < last; block = next++) {
      try {
        work(block);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (block < worst) worst = block, failure = std::current_exception();
        next = last;  // the others finish the blocks they have
        return;
      }
    }
  };
  run_threads(reading_threads(threads, last - first), run);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

std::string Damage::sentence() const {
  std::string text = printable(file.string());
  if (block) {
    text += ", block " + std::to_string(*block) + " (from byte " + std::to_string(*block * kBlockBytes) + ")";
  }
  return text + ": " + reason;
}

DamagedError::DamagedError(Damage damage)
    : CheckpointError("Damaged checkpoint: " + damage.sentence() +
                      ". Resume from another generation (redline verify lists them)."),
      damage_(std::move(damage)) {}

bool is_damage(int error) { return error == ENOENT || error == ENOTDIR || error == EISDIR; }

void throw_reading_error(const std::filesystem::path& path, int error) {
  std::string next = "check the disk and its mount, then start again";
  if (error == ENOENT || error == ENOTDIR) next = "check the path";
  if (error == EACCES || error == EPERM) next = "change its permissions, or run as a user who may read it";
  if (error == EMFILE || error == ENFILE) next = "raise the limit of open files (ulimit -n)";
  if (error == ENOMEM) next = "free memory, then start again";
  throw DiskError("Cannot read '" + printable(path.string()) + "': " + std::generic_category().message(error) + "; " +
                  next + ". Nothing was changed.");
}

std::atomic<ReadingFault> reading_fault{nullptr};

int injected_error(const std::filesystem::path& path) {
  const ReadingFault fault = reading_fault.load(std::memory_order_relaxed);
  return fault == nullptr ? 0 : fault(path);
}

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  if (const int error = injected_error(path_)) throw_reading_error(path_, error);
  // Non-blocking so that a FIFO in the place of a checkpoint cannot hang us; it has no effect on regular files.
  do {
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) throw_reading_error(path_, errno);
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0) {
    const int error = errno;
    ::close(descriptor_);
    throw_reading_error(path_, error);
  }
  if (!S_ISREG(facts.st_mode)) {
    ::close(descriptor_);
    throw CheckpointError("'" + printable(path_.string()) +
                          "' is not a regular file; give the path of a checkpoint file.");
  }
  bytes_ = static_cast<uint64_t>(facts.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(uint64_t offset, std::span<std::byte> target) const {
  while (!target.empty()) {
    if (const int error = injected_error(path_)) throw_reading_error(path_, error);
    const ssize_t got = ::pread(descriptor_, target.data(), target.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_reading_error(path_, errno);
    if (got == 0) throw DamagedError({path_, offset / kBlockBytes, "the file ends at byte " + std::to_string(offset)});
    offset += static_cast<uint64_t>(got);
    target = target.subspan(static_cast<size_t>(got));
  }
}

void read_segments(const InputFile& file, std::span<const FileSegment> segments, std::span<const uint32_t> block_sums,
                   int threads) {
  if (segments.empty()) return;
  const uint64_t first_byte = segments.front().offset;
  const uint64_t last_byte = segments.back().offset + segments.back().target.size();
  const uint64_t first = first_byte / kBlockBytes, last = block_count(last_byte);
  const bool sum = !block_sums.empty();
  REDLINE_CHECK(!sum || (first_byte == 0 && block_sums.size() == last), "checked reads cover the whole file");
  for_each_block(first, last, threads, [&](uint64_t block) {
    const uint64_t begin = block * kBlockBytes;
    const uint32_t crc = read_block(file, segments, begin, std::min(begin + kBlockBytes, last_byte), sum);
    if (sum) require_sum(file, block, crc, block_sums[block]);
  });
}

void check_blocks(const InputFile& file, std::span<const uint32_t> block_sums, int threads) {
  REDLINE_CHECK(block_sums.size() == block_count(file.bytes()), "the caller has compared the sizes");
  for_each_block(0, block_sums.size(), threads, [&](uint64_t block) {
    thread_local std::vector<std::byte> piece(kPieceBytes);
    uint32_t crc = 0;
    const uint64_t end = std::min((block + 1) * kBlockBytes, file.bytes());
    for (uint64_t at = block * kBlockBytes; at < end; at += kPieceBytes) {
      const auto part = std::span(piece).first(std::min(kPieceBytes, end - at));
      file.read(at, part);
      crc = crc32c(part, crc);
    }
    require_sum(file, block, crc, block_sums[block]);
  });
}

}  // namespace redline::train
