// The disk under a path: its kind, and how fast it reads when the page cache does not help.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace redline::device {

struct DiskOptions {
  double seconds = 0.7;  // for reading; writing a file to read costs at most as much again
  uint64_t largest_bytes = uint64_t{256} << 20;
};

struct DiskFacts {
  std::string kind = "unknown";  // "ssd", "hdd", "tmpfs", "network", "unknown"
  std::string filesystem;
  double read_gb_per_second = 0;              // 0 = could not be measured; `how` says why
  std::optional<double> random_read_seconds;  // median of 4 KiB reads past the page cache
  uint64_t bytes_read = 0;
  std::string how;  // "direct reads of a 256 MiB temporary file"
};

// `path` is a file to read, or a folder in which a temporary file (never visible under a name) is written and read; a
// folder that cannot be written is measured on the largest file found in it. Throws DataError when the path does not
// exist.
DiskFacts measure_disk(const std::filesystem::path& path, const DiskOptions& options = {});

// Pure: `rotational` is the kernel's word, which is only a default on virtual disks; there the time of a random read
// decides.
std::string classify_disk(const std::string& fstype, const std::string& source, std::optional<bool> rotational,
                          std::optional<double> random_read_seconds);

}  // namespace redline::device
