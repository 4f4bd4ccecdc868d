// Gathers MachineFacts from the kernel's files, CPUID and LibTorch. Nothing here can fail: what is unknown keeps its
// default.
#include "device/machine.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/cores.h"
#include "core/strings.h"
#include "device/gpu_monitor.h"
#include "device/host/cgroup.h"
#include "device/host/cpu_features.h"
#include "device/host/pinned.h"
#include "device/host/proc_text.h"

namespace redline::device {
namespace {

int count_numa_nodes() {
  int nodes = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", ignored)) {
    const std::string name = entry.path().filename().string();
    if (starts_with(name, "node") && parse_int(name.substr(4))) ++nodes;
  }
  return std::max(nodes, 1);
}

std::string os_name() {
  for (const std::string& line : split(proc_text("/etc/os-release"), '\n')) {
    if (!starts_with(line, "PRETTY_NAME=")) continue;
    std::string value = line.substr(12);
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
    return value;
  }
  return "unknown";
}

void fill_memory(MachineFacts& facts, const CgroupLimits& cgroup) {
  const std::string meminfo = proc_text("/proc/meminfo");
  facts.memory_bytes = proc_field(meminfo, "MemTotal").value_or(0) * 1024;
  facts.memory_available_bytes = proc_field(meminfo, "MemAvailable").value_or(0) * 1024;
  facts.memory_limit_bytes = facts.memory_bytes;
  if (cgroup.memory_limit != 0 && cgroup.memory_limit < facts.memory_bytes) {
    facts.memory_limit_bytes = cgroup.memory_limit;
    facts.memory_available_bytes = std::min(facts.memory_available_bytes, cgroup.memory_available);
  }
}

void fill_gpus(MachineFacts& facts) {
  facts.has_cuda = at::globalContext().hasCUDA() && at::accelerator::deviceCount() > 0;
  facts.can_pin_memory = can_pin_memory();
  const auto accelerator = at::accelerator::getAccelerator();
  if (!accelerator) return;
  const auto monitor = GpuMonitor::open();
  for (int index = 0; index < at::accelerator::deviceCount(); ++index) {
    GpuFacts gpu;
    const auto described = monitor ? monitor->describe(index) : std::nullopt;
    gpu.name = described ? described->name : c10::DeviceTypeName(*accelerator, true);
    gpu.memory_bytes = described ? described->memory_bytes : 0;
    facts.gpus.push_back(std::move(gpu));
  }
}

}  // namespace

bool has_bf16_units(const MachineFacts& facts) { return facts.avx512_bf16 || facts.amx_bf16; }
bool has_fp16_units(const MachineFacts& facts) { return facts.avx512_fp16; }

int cores_allowed(int affinity, double quota) {
  int cores = std::max(affinity, 1);
  if (quota > 0) cores = std::min(cores, std::max(1, static_cast<int>(std::floor(quota + 1e-9))));
  return cores;
}

MachineFacts read_machine_facts() {
  MachineFacts facts;
  const CgroupLimits cgroup = read_cgroup_limits();
  facts.cpu_model = cpu_model();
  facts.logical_cpus = std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  facts.cgroup_cpu_quota = cgroup.cpu_quota;
  facts.allowed_cpus = cores_allowed(affinity_cpus(), cgroup.cpu_quota);
  facts.numa_nodes = count_numa_nodes();
  const CpuFeatures cpu = cpu_features();
  facts.avx2 = cpu.avx2;
  facts.avx512f = cpu.avx512f;
  facts.avx512_bf16 = cpu.avx512_bf16;
  facts.avx512_fp16 = cpu.avx512_fp16;
  facts.amx_bf16 = cpu.amx_bf16;
  facts.amx_int8 = cpu.amx_int8;
  fill_memory(facts, cgroup);
  facts.os = os_name();
  utsname names{};
  if (uname(&names) == 0) facts.kernel = names.release;
  fill_gpus(facts);
  return facts;
}

}  // namespace redline::device
