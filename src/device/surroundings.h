// What the kernel counts of this process's surroundings: who else used its cores, how long its threads waited for one,
// throttling, pressure, swapping. Counts that only grow; the difference of two tells of the time between them. What a
// kernel or a container does not show is absent, never zero.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace redline::device {

struct SurroundingsCounts {
  int64_t at_ns = 0, own_cpu_ns = 0;
  int cores = 0;  // that this process may run on
  int64_t involuntary_switches = 0, major_faults = 0;
  std::optional<double> busy_seconds, stolen_seconds;  // of these cores: not idle; taken by the hypervisor
  std::optional<int64_t> run_wait_ns;                  // of its living threads: ready, but without a core
  std::optional<int64_t> throttled_ns;                 // by its cgroup's quota, summed over cores
  std::optional<int64_t> cpu_pressure_ns, memory_pressure_ns, io_pressure_ns;  // some of the group's tasks stalled
  std::optional<int64_t> swapped_pages;                                        // of the whole machine, in and out
};

class SurroundingsReader {
 public:
  // Everything is read below `root`, so tests bring a file tree of their own.
  explicit SurroundingsReader(std::filesystem::path root = "/");
  // About 0.1 ms: not for every step.
  SurroundingsCounts read() const;
  // What is not to be seen here, in words.
  std::vector<std::string> unseen() const;

 private:
  std::optional<int64_t> pressure(const char* name) const;

  std::filesystem::path root_;
  std::vector<int> cores_;
  std::optional<std::filesystem::path> group_, cpu_group_;  // version 2; the cpu controller of version 1
};

}  // namespace redline::device
