// The sentences of `redline machine`. A ratio within a tenth of 1 is called "about the same": a rate measured in a
// fraction of a second is not more exact than that.
#include <fmt/format.h>

#include "core/strings.h"
#include "device/machine.h"

namespace redline::device {
namespace {

constexpr double kSame = 1.1;

std::string times(double ratio) { return ratio >= 10 ? fmt::format("{:.0f}x", ratio) : fmt::format("{:.1f}x", ratio); }

// `operation` names what was measured; rates 0 = not measured, then nothing is said.
void compare_precision(std::vector<std::string>& words, const char* name, const char* mixed, const char* operation,
                       double rate, double fp32, double other_rate, double other_fp32) {
  if (fp32 <= 0 || rate <= 0) return;
  const double faster = rate / fp32;
  // Both operations must agree before we advise on the whole job.
  const bool both_measured = other_rate > 0 && other_fp32 > 0;
  const double other_faster = both_measured ? other_rate / other_fp32 : faster;
  if (faster < 1 / kSame && other_faster < kSame) {
    words.push_back(fmt::format("{} is {} slower than fp32 here ({}: {:.0f} against {:.0f} GFLOP/s): keep 32-true.",
                                name, times(1 / faster), operation, rate, fp32));
  } else if (faster > kSame && other_faster > 1 / kSame) {
    words.push_back(fmt::format("{} is {} faster than fp32 here ({}: {:.0f} against {:.0f} GFLOP/s): try {}.", name,
                                times(faster), operation, rate, fp32, mixed));
  } else if (faster >= 1 / kSame && faster <= kSame && other_faster >= 1 / kSame && other_faster <= kSame) {
    words.push_back(fmt::format("{} is about as fast as fp32 here: {} may save memory, not time.", name, mixed));
  } else {
    words.push_back(
        fmt::format("{} is {} in matrix products and {} in convolutions against fp32 here: measure {} on the job.",
                    name, faster >= 1 ? times(faster) + " faster" : times(1 / faster) + " slower",
                    other_faster >= 1 ? times(other_faster) + " faster" : times(1 / other_faster) + " slower", mixed));
  }
}

std::string cores_sentence(const MachineFacts& facts) {
  if (facts.cgroup_cpu_quota > 0 && facts.cgroup_cpu_quota < facts.logical_cpus) {
    return fmt::format(
        "This process may use {} of {} cores (a cgroup quota of {:.1f}): more busy threads than that are stopped by "
        "the kernel "
        "for part of every 0.1 s.",
        facts.allowed_cpus, facts.logical_cpus, facts.cgroup_cpu_quota);
  }
  if (facts.allowed_cpus < facts.logical_cpus) {
    return fmt::format("This process may use {} of {} cores (affinity): intra-op threads and workers share those {}.",
                       facts.allowed_cpus, facts.logical_cpus, facts.allowed_cpus);
  }
  return fmt::format("This process may use {} core{}: intra-op threads and workers share {}.", facts.allowed_cpus,
                     facts.allowed_cpus == 1 ? "" : "s", facts.allowed_cpus == 1 ? "it" : "them");
}

void add_memory(std::vector<std::string>& words, const MachineFacts& facts, bool quiet) {
  if (facts.memory_limit_bytes != 0 && facts.memory_limit_bytes < facts.memory_bytes) {
    words.push_back(fmt::format(
        "A cgroup limits memory to {} of {}: above it the kernel kills the process, so redline stays below.",
        format_bytes(facts.memory_limit_bytes), format_bytes(facts.memory_bytes)));
  }
  if (quiet && facts.memory_gb_per_second > 0 && facts.gemm_fp32_gflops > 0) {
    words.push_back(
        fmt::format("Memory moves {:.1f} GB/s: an fp32 operation with fewer than {:.0f} floating-point operations per "
                    "byte waits for "
                    "memory, not for arithmetic.",
                    facts.memory_gb_per_second, facts.gemm_fp32_gflops / facts.memory_gb_per_second));
  }
}

void add_disk(std::vector<std::string>& words, const MachineFacts& facts) {
  const double rate = facts.disk_read_gb_per_second;
  if (facts.disk_kind == "tmpfs") {
    words.push_back("The path lies in memory (tmpfs): reading costs no disk time, and its files count as memory.");
  } else if (facts.disk_kind == "hdd") {
    words.push_back(
        "The path is on a rotating disk: keep samples in large files (tar, Parquet) or in a cache; random reads are "
        "slow.");
  } else if (facts.disk_kind == "network") {
    words.push_back("The path is on a network file system: read large files, and cache what is read every epoch.");
  }
  if (rate > 0 && facts.disk_kind != "tmpfs") {
    words.push_back(fmt::format("The path's disk reads {:.2f} GB/s without the page cache{}.", rate,
                                rate < 0.2 ? ": slow enough to hold up training on audio or images" : ""));
  }
}

}  // namespace

std::vector<std::string> machine_words(const MachineFacts& facts, const std::string& problem) {
  std::vector<std::string> words;
  words.push_back(cores_sentence(facts));
  if (facts.numa_nodes > 1) {
    words.push_back(fmt::format("Memory has {} NUMA nodes: one rank per node, bound to it, reads its own memory.",
                                facts.numa_nodes));
  }
  const bool quiet = problem.empty();
  if (quiet) {
    compare_precision(words, "bf16", "bf16-mixed", "matrix product", facts.gemm_bf16_gflops, facts.gemm_fp32_gflops,
                      facts.conv_bf16_gflops, facts.conv_fp32_gflops);
    compare_precision(words, "fp16", "16-mixed", "matrix product", facts.gemm_fp16_gflops, facts.gemm_fp32_gflops,
                      facts.conv_fp16_gflops, facts.conv_fp32_gflops);
  } else {
    words.push_back(
        fmt::format("The rates are lower limits and say nothing about precisions: {}. They are not kept, and an "
                    "earlier profile stays; run it again when nothing "
                    "else runs.",
                    problem));
  }
  add_memory(words, facts, quiet);
  add_disk(words, facts);
  if (facts.gpus.empty()) {
    words.push_back("LibTorch sees no GPU: training runs on the CPU, and pin_memory has no device to pin for.");
  } else {
    words.push_back(fmt::format("LibTorch sees {} GPU{}; redline's GPU path is compiled but was never tested on one.",
                                facts.gpus.size(), facts.gpus.size() == 1 ? "" : "s"));
  }
  return words;
}

}  // namespace redline::device
