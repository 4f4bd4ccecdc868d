#include "tune/experiments/gpu_watch.h"

#include <chrono>

namespace redline::tune {

GpuWatch::GpuWatch(std::unique_ptr<device::GpuMonitor> monitor) : monitor_(std::move(monitor)) {
  if (monitor_ && monitor_->count() > 0) thread_ = std::thread([this] { watch(); });
}

GpuWatch::~GpuWatch() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

double GpuWatch::mean() const {
  const int64_t readings = readings_.load();
  return readings > 0 ? sum_.load() / static_cast<double>(readings) : -1;
}

void GpuWatch::watch() {
  using namespace std::chrono_literals;
  while (!stop_.load()) {
    for (int i = 0; i < monitor_->count(); ++i) {
      if (const auto reading = monitor_->read(i)) {
        sum_.store(sum_.load() + reading->utilisation);
        readings_.fetch_add(1);
      }
    }
    std::this_thread::sleep_for(200ms);
  }
}

}  // namespace redline::tune
