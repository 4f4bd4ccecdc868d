// Reads a file straight into where its parts belong, on several threads, checking the CRC32C of each block while it is
// still in cache. Blocks are the unit of damage: a bad one is named by its number, so that a message can say where a
// file is broken.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace redline::train {

inline constexpr uint64_t kBlockBytes = uint64_t{1} << 20;
inline uint64_t block_count(uint64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes; }

// A part of the file and its place in memory.
struct FileSegment {
  uint64_t offset = 0;
  std::span<std::byte> target;
};

// What is wrong with one file of a checkpoint. Travels as CheckpointError where nobody can fall back to another
// generation.
struct Damage {
  std::filesystem::path file;
  std::optional<uint64_t> block;  // of kBlockBytes; absent when the whole file is concerned (missing)
  std::string reason;             // "CRC32C is 1234abcd, MANIFEST.json says 5678ef01"

  std::string sentence() const;  // "…/model.safetensors, block 3 (bytes 3145728 to 4194304): …"
};
class DamagedError : public CheckpointError {
 public:
  explicit DamagedError(Damage damage);
  const Damage& damage() const { return damage_; }

 private:
  Damage damage_;
};

// What an errno of the reading side means for a generation that names the file: missing, or a directory in its place,
// is damage. Everything else (EIO, ESTALE, EMFILE, EACCES, ENOMEM, …) may be over in a minute and says nothing about
// the bytes: it is a DiskError, and nothing is renamed because of it.
bool is_damage(int error);
[[noreturn]] void throw_reading_error(const std::filesystem::path& path, int error);  // DiskError

// For tests: the errno that looking at, opening or reading this path gives; 0 or null: what the system says.
using ReadingFault = int (*)(const std::filesystem::path&);
extern std::atomic<ReadingFault> reading_fault;
int injected_error(const std::filesystem::path& path);

// A regular file opened for reading. Throws DiskError when it cannot be opened, CheckpointError when it is no regular
// file.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  // Exactly target.size() bytes at `offset`; throws DamagedError when the file ends before, DiskError on I/O errors.
  void read(uint64_t offset, std::span<std::byte> target) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t bytes_ = 0;
};

// Fills the segments (ascending, not overlapping; empty ones allowed). With `block_sums` (one per block) the segments
// must cover the whole file, and the first block that differs is thrown as DamagedError. `threads` 0 = as many as help
// on this machine.
void read_segments(const InputFile& file, std::span<const FileSegment> segments, std::span<const uint32_t> block_sums,
                   int threads = 0);
// Only compares the sums (one per block of the file); throws DamagedError for a block that differs.
void check_blocks(const InputFile& file, std::span<const uint32_t> block_sums, int threads = 0);

}  // namespace redline::train
