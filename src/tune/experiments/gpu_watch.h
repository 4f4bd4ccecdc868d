// Reads the GPUs' utilisation a few times a second while it lives; nothing where there is none.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "device/gpu_monitor.h"

namespace redline::tune {

class GpuWatch {
 public:
  explicit GpuWatch(std::unique_ptr<device::GpuMonitor> monitor = device::GpuMonitor::open());
  ~GpuWatch();
  double mean() const;  // over devices and readings so far; -1 = none

 private:
  void watch();
  std::unique_ptr<device::GpuMonitor> monitor_;
  std::atomic<bool> stop_{false};
  std::atomic<double> sum_{0};
  std::atomic<int64_t> readings_{0};
  std::thread thread_;
};

}  // namespace redline::tune
