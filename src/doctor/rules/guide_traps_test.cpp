#include "doctor/rules/guide_traps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace redline::doctor {
namespace {

using testing::HasSubstr;

TEST(GuideTraps, GuideFoursPuzzleIsAboutUnits) {
  // Guide 4: batch 4 at 7.45 iterations/s, batch 8 at 3.64: "51 % slower" is 29.8 -> 29.1 samples/s.
  const auto trap = iterations_trap({4, 7.45, 8, 3.64});
  ASSERT_TRUE(trap);
  EXPECT_THAT(trap->sentence, HasSubstr("fell by 51 %"));
  EXPECT_THAT(trap->sentence, HasSubstr("29.8 to 29.1"));
}

TEST(GuideTraps, ARealSlowdownIsNoTrap) {
  EXPECT_FALSE(iterations_trap({4, 7.45, 8, 2.0}));  // samples/s fell too
  EXPECT_FALSE(iterations_trap({4, 7.45, 4, 3.64}));
  EXPECT_FALSE(iterations_trap({4, 7.45, 8, 7.45}));
}

TEST(GuideTraps, StatesOfAJob) {
  JobView job;
  Observation seen;
  MachineFacts machine;
  machine.allowed_cpus = 2;
  EXPECT_TRUE(find_traps(job, seen, machine).empty());

  job.workers = 8;
  job.precision = "bf16-mixed";
  machine.gemm_fp32_gflops = 339;
  machine.gemm_bf16_gflops = 57;
  seen.step_seconds = 0.1;
  seen.stage_seconds_per_step[static_cast<size_t>(measure::Stage::Read)] = 0.0004;
  machine.disk_kind = "hdd";
  std::vector<std::string> ids;
  for (const Trap& trap : find_traps(job, seen, machine)) ids.push_back(trap.id);
  EXPECT_THAT(ids, testing::ElementsAre("slow_precision", "workers_over_cores", "workers_not_needed", "slow_disk"));

  machine.gemm_bf16_gflops = 900;  // a machine with bf16 units: the same setting is no trap
  EXPECT_EQ(find_traps(job, seen, machine).size(), 3u);
}

TEST(GuideTraps, ACompilationThatTheRunDoesNotEarnBack) {
  JobView job;
  Observation seen;
  seen.step_seconds = 0.1;  // 60 s of compiling, 0.023 s saved a step: 2,600 steps
  job.max_steps = 1000;
  job.compile = "true";
  const auto found = find_traps(job, seen, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].id, "compiled_for_too_few_steps");
  EXPECT_THAT(found[0].sentence, HasSubstr("in 2600 steps, and the run has 1000"));
  job.max_steps = 3000;
  EXPECT_TRUE(find_traps(job, seen, {}).empty());
  job.max_steps = -1;  // no end is known
  EXPECT_TRUE(find_traps(job, seen, {}).empty());
  job.max_steps = 1000, job.compile = "false";
  EXPECT_TRUE(find_traps(job, seen, {}).empty());
}

}  // namespace
}  // namespace redline::doctor
