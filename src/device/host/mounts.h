// The mount table of this process (/proc/self/mountinfo), for finding cgroup folders and the file system under a path.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace redline::device {

struct Mount {
  int major = 0, minor = 0;
  std::string root, mount_point, fstype, source, super_options;
};

// Later mounts cover earlier ones; the order of the file is kept. Lines that do not parse are left out.
std::vector<Mount> parse_mountinfo(std::string_view text);

// The mount that holds `absolute`: the longest mount point that is a prefix, the last one when several are equal. Null
// when none.
const Mount* mount_of(const std::vector<Mount>& mounts, const std::filesystem::path& absolute);

}  // namespace redline::device
