// What this machine has, as plain data: filled by device, read by every component that resolves an `auto`.
// Rates are 0 when they were not measured.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace redline {

struct GpuFacts {
  std::string name;
  uint64_t memory_bytes = 0;
};

// Which process of a job this is. Alone: one of one.
struct RankFacts {
  int rank = 0, world = 1;  // over all hosts
  int local_rank = 0, per_host = 1;
  bool writes() const { return rank == 0; }  // what only one process of a job may write: records, checkpoints, pages
};

struct MachineFacts {
  std::string cpu_model;
  int logical_cpus = 1;           // of the machine
  int allowed_cpus = 1;           // affinity and cgroup quota, rounded down, at least 1
  double cgroup_cpu_quota = 0.0;  // cores; 0 = none
  int numa_nodes = 1;
  bool avx2 = false, avx512f = false, avx512_bf16 = false, avx512_fp16 = false, amx_bf16 = false, amx_int8 = false;
  uint64_t memory_bytes = 0;            // of the machine
  uint64_t memory_limit_bytes = 0;      // cgroup limit, or memory_bytes
  uint64_t memory_available_bytes = 0;  // now
  std::string os, kernel;
  std::vector<GpuFacts> gpus;
  bool has_cuda = false;
  bool can_pin_memory = false;

  // Measured rates (redline machine): GEMM and convolution in GFLOP/s, memory and disk in GB/s, elementwise in G
  // elements/s.
  double gemm_fp32_gflops = 0, gemm_bf16_gflops = 0, gemm_fp16_gflops = 0;
  double conv_fp32_gflops = 0, conv_bf16_gflops = 0, conv_fp16_gflops = 0;
  double memory_gb_per_second = 0, elementwise_g_per_second = 0;
  std::string disk_kind;  // "ssd", "hdd", "tmpfs", "network", "unknown"
  double disk_read_gb_per_second = 0;

  RankFacts ranks;
  // This process's share of the host, for every `auto` that divides cores or memory. At least one core.
  int cpus_of_rank() const { return std::max(1, allowed_cpus / std::max(1, ranks.per_host)); }
  uint64_t memory_of_rank_bytes() const {
    return memory_limit_bytes / static_cast<uint64_t>(std::max(1, ranks.per_host));
  }
};

// The measured rates with their names in files; the disk's is not among them.
template <class Facts, class Visit>
void visit_rates(Facts& facts, Visit visit) {
  visit("gemm_fp32_gflops", facts.gemm_fp32_gflops);
  visit("gemm_bf16_gflops", facts.gemm_bf16_gflops);
  visit("gemm_fp16_gflops", facts.gemm_fp16_gflops);
  visit("conv_fp32_gflops", facts.conv_fp32_gflops);
  visit("conv_bf16_gflops", facts.conv_bf16_gflops);
  visit("conv_fp16_gflops", facts.conv_fp16_gflops);
  visit("memory_gb_per_second", facts.memory_gb_per_second);
  visit("elementwise_g_per_second", facts.elementwise_g_per_second);
}

}  // namespace redline
