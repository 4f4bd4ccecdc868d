// /proc/self/statm stays open, since the reader runs once per step; 0 means the kernel gave no answer.
#include "device/process_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "device/host/cgroup.h"
#include "device/host/proc_text.h"

namespace redline::device {

int64_t process_rss_bytes() {
  static const int fd = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  static const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  char text[128];
  const ssize_t got = fd < 0 ? 0 : ::pread(fd, text, sizeof(text) - 1, 0);
  if (got <= 0) return 0;
  text[got] = '\0';
  char* after_size = nullptr;
  std::strtoll(text, &after_size, 10);
  return std::strtoll(after_size, nullptr, 10) * page_bytes;
}

int64_t process_peak_rss_bytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? int64_t{usage.ru_maxrss} * 1024 : 0;
}

int64_t process_pss_bytes() {
  return static_cast<int64_t>(proc_field(proc_text("/proc/self/smaps_rollup"), "Pss").value_or(0) * 1024);
}

int64_t system_available_bytes() {
  auto available = static_cast<int64_t>(proc_field(proc_text("/proc/meminfo"), "MemAvailable").value_or(0) * 1024);
  const CgroupLimits cgroup = read_cgroup_limits();
  if (cgroup.memory_limit != 0) available = std::min(available, static_cast<int64_t>(cgroup.memory_available));
  return available;
}

}  // namespace redline::device
