// What the kernel counts of this process's surroundings: who else used its cores, how long its threads waited for one,
// throttling, pressure, swapping. Counts that only grow; the difference of two tells of the time between them. What a
// kernel or a container does not show is absent, never zero.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace redline::device {

class GpuMonitor;
class Heartbeat;
class NeighbourWatch;

struct SurroundingsCounts {
  int64_t at_ns = 0, own_cpu_ns = 0;
  int cores = 0;  // that this process may run on
  int64_t involuntary_switches = 0, major_faults = 0;
  std::optional<double> busy_seconds, stolen_seconds;  // of these cores: not idle; taken by the hypervisor
  std::optional<int64_t> run_wait_ns;                  // of its living threads: ready, but without a core
  std::optional<int64_t> throttled_ns;                 // by its cgroup's quota, summed over cores
  std::optional<int64_t> cpu_pressure_ns, memory_pressure_ns, io_pressure_ns;  // some of the group's tasks stalled
  std::optional<int64_t> swapped_pages;                                        // of the whole machine, in and out
  std::optional<int64_t> stopped_ns;              // nothing of the process could run; with a heartbeat only
  std::optional<int64_t> read_calls, read_bytes;  // its own, from files or from the page cache
  std::optional<int64_t> disk_read_bytes;         // those that the disk had to bring
  std::optional<int64_t> others_disk_bytes;       // to and from the machine's disks, less its own; written late
  // Not counts: of the core that reads this, now; of other processes since it was looked at them last.
  double gigahertz = 0;
  std::optional<double> yielding_cores;  // used by those that run only where nobody else wants to
  std::string neighbour;                 // the largest of the rest, "python3 (4711)"
  double neighbour_cores = 0;
  std::optional<int> gpu_others;  // processes that compute on this one's GPUs, by NVML; never seen on a real one
};

class SurroundingsReader {
 public:
  // Everything is read below `root`, so tests bring a file tree of their own.
  explicit SurroundingsReader(std::filesystem::path root = "/");
  ~SurroundingsReader();
  // From here on other users of its GPUs are seen, where NVML is there; asked every few seconds.
  void watch_gpus();
  // From here on stops are seen; one thread more (device/host/heartbeat.h).
  void watch_stops();
  // About 0.2 ms: not for every step.
  SurroundingsCounts read() const;
  // What is not to be seen here, in words.
  std::vector<std::string> unseen() const;

 private:
  std::optional<int64_t> pressure(const char* name) const;

  std::filesystem::path root_;
  std::vector<int> cores_;
  std::optional<std::filesystem::path> group_, cpu_group_;  // version 2; the cpu controller of version 1
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<NeighbourWatch> neighbours_;
  std::unique_ptr<GpuMonitor> gpus_;
  mutable std::optional<int> gpu_others_;
  mutable int64_t gpus_read_ns_ = 0;
  mutable int64_t own_calls_ = 0, own_bytes_ = 0;  // spent in read(), one thread at a time
};

// The clock of the core this runs on, from a chain of products that each wait for the one before: three cycles each on
// x86-64 (Agner Fog's tables, Intel since Nehalem, AMD since Zen) and on most others, so where it is not three only
// ratios mean anything. Takes about 30 us.
double measure_gigahertz();

}  // namespace redline::device
