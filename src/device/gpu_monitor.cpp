// The few NVML functions and structs used, as NVIDIA's NVML API reference documents them (they are stable across
// drivers).
#include "device/gpu_monitor.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/strings.h"

namespace redline::device {
namespace {

using NvmlDevice = void*;
struct NvmlUtilization {
  unsigned int gpu, memory;  // per cent
};
struct NvmlMemory {
  unsigned long long total, free, used;
};
// nvmlProcessInfo_v2_t, which the functions of version 2 and 3 fill.
struct NvmlProcess {
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance, compute_instance;
};
constexpr int kNvmlSuccess = 0;

template <class Function>
bool find_symbol(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

struct GpuMonitor::Impl {
  void* library = nullptr;
  bool initialised = false;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*get_count)(unsigned int*) = nullptr;
  int (*get_handle)(unsigned int, NvmlDevice*) = nullptr;
  int (*get_utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*get_memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*get_name)(NvmlDevice, char*, unsigned int) = nullptr;
  int (*get_processes)(NvmlDevice, unsigned int*, NvmlProcess*) = nullptr;  // older drivers have none

  ~Impl() {
    if (initialised) shutdown();
    if (library != nullptr) dlclose(library);
  }
  bool load(const std::string& path) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr && !find_symbol(library, "nvmlDeviceGetComputeRunningProcesses_v3", get_processes))
      find_symbol(library, "nvmlDeviceGetComputeRunningProcesses_v2", get_processes);
    return library != nullptr && find_symbol(library, "nvmlInit_v2", init) &&
           find_symbol(library, "nvmlShutdown", shutdown) && find_symbol(library, "nvmlDeviceGetCount_v2", get_count) &&
           find_symbol(library, "nvmlDeviceGetHandleByIndex_v2", get_handle) &&
           find_symbol(library, "nvmlDeviceGetUtilizationRates", get_utilization) &&
           find_symbol(library, "nvmlDeviceGetMemoryInfo", get_memory) &&
           find_symbol(library, "nvmlDeviceGetName", get_name);
  }
  std::optional<NvmlDevice> handle(int index) const {
    NvmlDevice device = nullptr;
    if (index < 0 || get_handle(static_cast<unsigned int>(index), &device) != kNvmlSuccess) return std::nullopt;
    return device;
  }
};

GpuMonitor::GpuMonitor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GpuMonitor::~GpuMonitor() = default;

std::unique_ptr<GpuMonitor> GpuMonitor::open(const std::string& library) {
  auto impl = std::make_unique<Impl>();
  if (!impl->load(library) || impl->init() != kNvmlSuccess) return nullptr;
  impl->initialised = true;
  return std::unique_ptr<GpuMonitor>(new GpuMonitor(std::move(impl)));
}

int GpuMonitor::count() const {
  unsigned int found = 0;
  return impl_->get_count(&found) == kNvmlSuccess ? static_cast<int>(found) : 0;
}

std::optional<GpuReading> GpuMonitor::read(int index) const {
  const auto device = impl_->handle(index);
  NvmlUtilization utilization{};
  NvmlMemory memory{};
  if (!device || impl_->get_utilization(*device, &utilization) != kNvmlSuccess ||
      impl_->get_memory(*device, &memory) != kNvmlSuccess) {
    return std::nullopt;
  }
  GpuReading reading;
  reading.utilisation = utilization.gpu / 100.0;
  reading.memory_utilisation = utilization.memory / 100.0;
  reading.memory_used_bytes = memory.used;
  reading.memory_total_bytes = memory.total;
  return reading;
}

std::optional<int> GpuMonitor::other_users() const {
  constexpr unsigned int kMostProcesses = 64;
  if (impl_->get_processes == nullptr) return std::nullopt;
  std::optional<int> others;
  for (int index = 0; index < count(); ++index) {
    const auto device = impl_->handle(index);
    std::array<NvmlProcess, kMostProcesses> found{};
    unsigned int number = kMostProcesses;
    if (!device || impl_->get_processes(*device, &number, found.data()) != kNvmlSuccess) continue;
    const auto end = found.begin() + std::min(number, kMostProcesses);
    const bool used = std::any_of(
        found.begin(), end, [](const NvmlProcess& one) { return one.pid == static_cast<unsigned int>(getpid()); });
    if (used) others = others.value_or(0) + static_cast<int>(end - found.begin()) - 1;
  }
  return others;
}

std::optional<GpuDescription> GpuMonitor::describe(int index) const {
  const auto device = impl_->handle(index);
  char name[96] = {};
  NvmlMemory memory{};
  if (!device || impl_->get_name(*device, name, sizeof(name)) != kNvmlSuccess ||
      impl_->get_memory(*device, &memory) != kNvmlSuccess) {
    return std::nullopt;
  }
  return GpuDescription{printable(name), memory.total};
}

}  // namespace redline::device
