// Limits that a container puts on this process: CPU quota and memory, cgroup v1 and v2, also nested (the tightest
// ancestor binds). Everything is read below `root`, so tests bring a file tree of their own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace redline::device {

struct CgroupLimits {
  double cpu_quota = 0.0;     // cores; 0 = none
  uint64_t memory_limit = 0;  // bytes; 0 = none
  uint64_t memory_available =
      0;  // limit less what cannot be reclaimed, of the level with least; meaningless when limit is 0
};

CgroupLimits read_cgroup_limits(const std::filesystem::path& root = "/");

// The folder of this process's own group: that of version 2 (no controller), or of a controller of version 1. None
// where it is not mounted here.
std::optional<std::filesystem::path> own_cgroup_folder(std::string_view controller,
                                                       const std::filesystem::path& root = "/");

}  // namespace redline::device
