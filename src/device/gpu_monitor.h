// Utilisation and memory of NVIDIA GPUs through NVML, found at run time (dlopen): no build or link dependency, and
// nothing where there is no driver. Tested against a library that imitates NVML; never on a real GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace redline::device {

struct GpuReading {
  double utilisation = 0;         // share of the last sampling period in which a kernel ran, 0..1
  double memory_utilisation = 0;  // share in which memory was read or written, 0..1
  uint64_t memory_used_bytes = 0, memory_total_bytes = 0;
};
struct GpuDescription {
  std::string name;
  uint64_t memory_bytes = 0;
};

// One per process is enough; any thread may read.
class GpuMonitor {
 public:
  // Null when the library or a driver is missing.
  static std::unique_ptr<GpuMonitor> open(const std::string& library = "libnvidia-ml.so.1");
  ~GpuMonitor();

  int count() const;
  std::optional<GpuReading> read(int index) const;
  std::optional<GpuDescription> describe(int index) const;
  // Other processes that compute on the GPUs that this one computes on. None where this process is on no list: it uses
  // no GPU yet, or its number here is not the driver's (a container).
  std::optional<int> other_users() const;

 private:
  struct Impl;
  explicit GpuMonitor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace redline::device
