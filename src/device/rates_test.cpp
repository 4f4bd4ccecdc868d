#include "device/rates.h"

#include <gtest/gtest.h>

#include "core/time.h"
#include "device/machine.h"
#include "device/threads.h"

namespace redline::device {
namespace {

TEST(Rates, BestRateCountsWorkPerSecond) {
  int runs = 0;
  const double rate = best_rate(
      [&] {
        ++runs;
        const int64_t end = now_ns() + 2'000'000;
        while (now_ns() < end) {
        }
      },
      100.0, 0.01);
  EXPECT_GE(runs, 3) << "a warm-up and at least two timed runs of 2 ms in 10 ms";
  EXPECT_LE(rate, 100.0 / 2e-3) << "no run can be faster than its own wait";
  EXPECT_GT(rate, 0);
}

TEST(Rates, FillsEveryRateAndRestoresThreads) {
  MachineFacts facts = read_machine_facts();
  const int threads = intra_op_threads();
  RateOptions options;
  options.seconds_per_probe = 0.02;
  const RateReport report = measure_rates(facts, options);
  EXPECT_EQ(intra_op_threads(), threads);
  EXPECT_GT(facts.gemm_fp32_gflops, 0);
  EXPECT_GT(report.cpu_share, 0);
  EXPECT_LE(report.cpu_share, 1);
  EXPECT_GT(facts.conv_fp32_gflops, 0);
  EXPECT_GT(facts.memory_gb_per_second, 0);
  EXPECT_GT(facts.elementwise_g_per_second, 0);
  for (double rate : {facts.gemm_bf16_gflops, facts.gemm_fp16_gflops, facts.conv_bf16_gflops, facts.conv_fp16_gflops}) {
    EXPECT_TRUE(rate > 0 || !report.notes.empty()) << "a rate that is missing is explained";
  }
}

}  // namespace
}  // namespace redline::device
