// Finds the cgroup folders of this process through /proc/self/cgroup and mountinfo (a container may see its own group
// as the mount's root) and takes the tightest value on the way up. Missing files mean "no limit": never an error.
#include "device/host/cgroup.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/strings.h"
#include "device/host/mounts.h"
#include "device/host/proc_text.h"

namespace redline::device {
namespace {

constexpr uint64_t kNoLimitAbove = uint64_t{1} << 60;  // v1 writes "no limit" as a number near 2^63

struct CgroupFolder {
  std::filesystem::path mount_point, folder;
};

// The folder of this process below `mount`: the part of `group` after the mount's own root.
CgroupFolder folder_in(const Mount& mount, std::string_view group, const std::filesystem::path& root) {
  std::string inside(group);
  if (mount.root != "/" && starts_with(inside, mount.root)) inside.erase(0, mount.root.size());
  if (inside.find("..") != std::string::npos)
    inside.clear();  // the group lies outside the namespace that is visible here
  CgroupFolder found;
  found.mount_point = root / std::filesystem::path(mount.mount_point).relative_path();
  found.folder = found.mount_point / std::filesystem::path(inside).relative_path();
  return found;
}

bool has_word(std::string_view comma_list, std::string_view word) {
  for (const std::string& part : split(comma_list, ',')) {
    if (part == word) return true;
  }
  return false;
}

// v2 when `controller` is empty.
std::optional<CgroupFolder> find_folder(const std::string& self_cgroup, const std::vector<Mount>& mounts,
                                        std::string_view controller, const std::filesystem::path& root) {
  for (const std::string& line : split(self_cgroup, '\n')) {
    const auto first = line.find(':');
    if (first == std::string::npos) continue;
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? !controllers.empty() : !has_word(controllers, controller)) continue;
    const std::string group = line.substr(second + 1);
    for (const Mount& mount : mounts) {
      const bool fits = controller.empty() ? mount.fstype == "cgroup2"
                                           : mount.fstype == "cgroup" && has_word(mount.super_options, controller);
      if (fits) return folder_in(mount, group, root);
    }
  }
  return std::nullopt;
}

// Calls `visit` for the folder and each ancestor up to the mount point.
template <class Visit>
void walk_up(const CgroupFolder& start, Visit visit) {
  std::filesystem::path folder = start.folder;
  for (int depth = 0; depth < 64; ++depth) {
    visit(folder);
    if (folder == start.mount_point || folder == folder.parent_path()) return;
    folder = folder.parent_path();
  }
}

void tighten_cpu(CgroupLimits& limits, double quota_us, double period_us) {
  if (quota_us <= 0 || period_us <= 0) return;
  const double cores = quota_us / period_us;
  limits.cpu_quota = limits.cpu_quota == 0.0 ? cores : std::min(limits.cpu_quota, cores);
}

void tighten_memory(CgroupLimits& limits, uint64_t limit, uint64_t used, uint64_t reclaimable) {
  if (limit == 0 || limit >= kNoLimitAbove) return;
  const uint64_t held = used > reclaimable ? used - reclaimable : 0;
  const uint64_t available = limit > held ? limit - held : 0;
  limits.memory_available = limits.memory_limit == 0 ? available : std::min(limits.memory_available, available);
  limits.memory_limit = limits.memory_limit == 0 ? limit : std::min(limits.memory_limit, limit);
}

void read_v2(CgroupLimits& limits, const CgroupFolder& start) {
  walk_up(start, [&](const std::filesystem::path& folder) {
    const std::vector<std::string> cpu = split(trim(proc_text(folder / "cpu.max")), ' ');
    if (cpu.size() == 2) tighten_cpu(limits, parse_double(cpu[0]).value_or(0), parse_double(cpu[1]).value_or(0));
    tighten_memory(limits, proc_number(folder / "memory.max").value_or(0),
                   proc_number(folder / "memory.current").value_or(0),
                   proc_field(proc_text(folder / "memory.stat"), "inactive_file").value_or(0));
  });
}

}  // namespace

std::optional<std::filesystem::path> own_cgroup_folder(std::string_view controller, const std::filesystem::path& root) {
  const auto found = find_folder(proc_text(root / "proc/self/cgroup"),
                                 parse_mountinfo(proc_text(root / "proc/self/mountinfo")), controller, root);
  if (!found) return std::nullopt;
  return found->folder;
}

CgroupLimits read_cgroup_limits(const std::filesystem::path& root) {
  CgroupLimits limits;
  const std::string self = proc_text(root / "proc/self/cgroup");
  const std::vector<Mount> mounts = parse_mountinfo(proc_text(root / "proc/self/mountinfo"));
  if (const auto v2 = find_folder(self, mounts, "", root)) read_v2(limits, *v2);
  if (const auto cpu = find_folder(self, mounts, "cpu", root)) {
    walk_up(*cpu, [&](const std::filesystem::path& folder) {
      const double quota = parse_double(trim(proc_text(folder / "cpu.cfs_quota_us"))).value_or(0);
      tighten_cpu(limits, quota, parse_double(trim(proc_text(folder / "cpu.cfs_period_us"))).value_or(0));
    });
  }
  if (const auto memory = find_folder(self, mounts, "memory", root)) {
    walk_up(*memory, [&](const std::filesystem::path& folder) {
      tighten_memory(limits, proc_number(folder / "memory.limit_in_bytes").value_or(0),
                     proc_number(folder / "memory.usage_in_bytes").value_or(0),
                     proc_field(proc_text(folder / "memory.stat"), "total_inactive_file").value_or(0));
    });
  }
  return limits;
}

}  // namespace redline::device
