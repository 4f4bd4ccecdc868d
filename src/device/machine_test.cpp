#include "device/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "device/host/pinned.h"
#include "device/process_memory.h"

namespace redline::device {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

TEST(Machine, CoresAllowed) {
  const struct {
    int affinity;
    double quota;
    int cores;
  } cases[] = {{2, 0, 2}, {8, 2.0, 2}, {8, 2.9, 2}, {8, 0.3, 1}, {2, 16, 2}, {0, 0, 1}, {4, 3.9999999999, 4}};
  for (const auto& c : cases) EXPECT_EQ(cores_allowed(c.affinity, c.quota), c.cores) << c.affinity << " " << c.quota;
}

TEST(Machine, ReadsThisMachine) {
  const MachineFacts facts = read_machine_facts();
  EXPECT_GE(facts.logical_cpus, 1);
  EXPECT_GE(facts.allowed_cpus, 1);
  EXPECT_LE(facts.allowed_cpus, facts.logical_cpus);
  EXPECT_GT(facts.memory_bytes, uint64_t{64} << 20);
  EXPECT_LE(facts.memory_limit_bytes, facts.memory_bytes);
  EXPECT_GT(facts.memory_available_bytes, 0U);
  EXPECT_FALSE(facts.kernel.empty());
  EXPECT_EQ(facts.can_pin_memory, can_pin_memory());
  EXPECT_EQ(facts.gpus.empty(), !facts.can_pin_memory);
  EXPECT_EQ(facts.gemm_fp32_gflops, 0.0) << "rates are measured separately";
}

TEST(Machine, PinningWithoutADeviceIsRefused) {
  if (can_pin_memory()) {
    EXPECT_NE(allocate_pinned(1 << 20), nullptr);
  } else {
    try {
      allocate_pinned(1 << 20);
      FAIL() << "pinned memory came from nowhere";
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(), HasSubstr("pin_memory: false"));
    }
  }
}

TEST(Machine, ProcessMemoryFollowsWhatIsTouched) {
  const int64_t before = process_rss_bytes();
  ASSERT_GT(before, 0);
  constexpr size_t kBytes = size_t{32} << 20;
  std::vector<char> block(kBytes, 1);
  EXPECT_GE(process_rss_bytes(), before + static_cast<int64_t>(kBytes) * 9 / 10);
  EXPECT_GE(process_peak_rss_bytes(), static_cast<int64_t>(kBytes));
  EXPECT_GT(process_pss_bytes(), static_cast<int64_t>(kBytes) / 2);
  EXPECT_LE(process_pss_bytes(), process_rss_bytes() + (int64_t{8} << 20));
  EXPECT_GT(system_available_bytes(), 0);
  EXPECT_EQ(block[kBytes / 2], 1);
}

MachineFacts plain() {
  MachineFacts facts;
  facts.logical_cpus = facts.allowed_cpus = 2;
  facts.memory_bytes = facts.memory_limit_bytes = uint64_t{24} << 30;
  return facts;
}

struct WordCase {
  const char* name;
  double fp32, bf16, fp16, conv32, conv16b, conv16;
  std::vector<const char*> said, unsaid;
};

TEST(MachineWords, Precision) {
  const WordCase cases[] = {
      {"bf16 slower",
       339,
       57,
       1,
       0,
       0,
       0,
       {"bf16 is 5.9x slower than fp32 here (matrix product: 57 against 339 GFLOP/s): keep 32-true.",
        "fp16 is 339x slower than fp32 here (matrix product: 1 against 339 GFLOP/s): keep 32-true."},
       {"bf16-mixed"}},
      {"bf16 faster",
       60,
       178,
       0,
       0,
       0,
       0,
       {"bf16 is 3.0x faster than fp32 here (matrix product: 178 against 60 GFLOP/s): try bf16-mixed."},
       {"fp16", "32-true"}},
      {"same",
       100,
       104,
       0,
       100,
       97,
       0,
       {"bf16 is about as fast as fp32 here: bf16-mixed may save memory, not time."},
       {"32-true"}},
      {"product and convolution disagree",
       100,
       50,
       0,
       100,
       300,
       0,
       {"bf16 is 2.0x slower in matrix products and 3.0x faster in convolutions against fp32 here: measure bf16-mixed "
        "on the job."},
       {"32-true"}},
      {"not measured", 0, 0, 0, 0, 0, 0, {}, {"bf16", "fp16"}},
  };
  for (const WordCase& c : cases) {
    MachineFacts facts = plain();
    facts.gemm_fp32_gflops = c.fp32;
    facts.gemm_bf16_gflops = c.bf16;
    facts.gemm_fp16_gflops = c.fp16;
    facts.conv_fp32_gflops = c.conv32;
    facts.conv_bf16_gflops = c.conv16b;
    facts.conv_fp16_gflops = c.conv16;
    const auto words = machine_words(facts);
    for (const char* sentence : c.said) EXPECT_THAT(words, Contains(sentence)) << c.name;
    for (const char* part : c.unsaid) EXPECT_THAT(words, Not(Contains(HasSubstr(part)))) << c.name;
  }
}

// Rates of a busy machine are accidents; once they made bf16 look 32x faster where it is slower.
TEST(MachineWords, NoAdviceFromABusyMachine) {
  MachineFacts facts = plain();
  facts.gemm_fp32_gflops = 0.1;
  facts.gemm_bf16_gflops = 3.1;
  facts.memory_gb_per_second = 4;
  const auto words = machine_words(facts, "the machine was busy");
  EXPECT_THAT(words, Contains(HasSubstr("say nothing about precisions: the machine was busy.")));
  EXPECT_THAT(words, Not(Contains(HasSubstr("bf16"))));
  EXPECT_THAT(words, Not(Contains(HasSubstr("per byte"))));
  EXPECT_THAT(machine_words(facts), Contains(HasSubstr("bf16 is 31x faster")));
}

TEST(MachineWords, CoresMemoryDiskAndGpu) {
  MachineFacts facts = plain();
  EXPECT_THAT(machine_words(facts), Contains("This process may use 2 cores: intra-op threads and workers share them."));
  EXPECT_THAT(machine_words(facts), Contains(HasSubstr("sees no GPU")));
  facts.logical_cpus = 64;
  facts.cgroup_cpu_quota = 2.5;
  EXPECT_THAT(machine_words(facts), Contains(HasSubstr("2 of 64 cores (a cgroup quota of 2.5)")));
  facts.cgroup_cpu_quota = 0;
  EXPECT_THAT(machine_words(facts), Contains(HasSubstr("2 of 64 cores (affinity)")));
  facts.numa_nodes = 2;
  EXPECT_THAT(machine_words(facts), Contains(HasSubstr("2 NUMA nodes")));
  facts.memory_limit_bytes = uint64_t{8} << 30;
  EXPECT_THAT(machine_words(facts), Contains(HasSubstr("limits memory to 8")));
  facts.memory_gb_per_second = 20;
  facts.gemm_fp32_gflops = 100;
  EXPECT_THAT(machine_words(facts), Contains(HasSubstr("fewer than 5 floating-point operations per byte")));
  facts.disk_kind = "hdd";
  facts.disk_read_gb_per_second = 0.12;
  EXPECT_THAT(machine_words(facts), Contains(HasSubstr("rotating disk")));
  EXPECT_THAT(machine_words(facts), Contains(HasSubstr("slow enough to hold up")));
  facts.disk_kind = "tmpfs";
  EXPECT_THAT(machine_words(facts), Contains(HasSubstr("tmpfs")));
  EXPECT_THAT(machine_words(facts), Not(Contains(HasSubstr("page cache"))));
  facts.gpus.push_back({"x", 1});
  EXPECT_THAT(machine_words(facts), Contains(HasSubstr("1 GPU; redline's GPU path is compiled but was never tested")));
}

}  // namespace
}  // namespace redline::device
