#include "doctor/guide_traps.h"

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

TEST(GuideTraps, GuideZeroValidatesTwiceAsOften) {
  EXPECT_THAT(validation_interval_trap(1.0, 0.5)->sentence, HasSubstr("2 times as often"));
  EXPECT_FALSE(validation_interval_trap(0.5, 1.0));
  EXPECT_FALSE(validation_interval_trap(2500, 1000));  // batches, not a fraction
}

TEST(GuideTraps, LossScaleGoesDownOnOverflowAndUpOnUnderflow) {
  EXPECT_THAT(loss_scale_trap(true, 512, 1024)->sentence, HasSubstr("Lower it"));
  EXPECT_THAT(loss_scale_trap(false, 512, 256)->sentence, HasSubstr("Raise it"));
  EXPECT_FALSE(loss_scale_trap(true, 512, 256));
  EXPECT_FALSE(loss_scale_trap(false, 512, 1024));
}

TEST(GuideTraps, GuideThreeCountsItsBatchTwice) {
  EXPECT_THAT(ranks_batch_trap(1024, 2, false)->sentence, HasSubstr("stays 1024, not 2048"));
  EXPECT_THAT(ranks_batch_trap(1024, 2, true)->sentence, HasSubstr("2048"));
  EXPECT_FALSE(ranks_batch_trap(1024, 1, true));
}

TEST(GuideTraps, StatesOfAJob) {
  Settings settings;
  Observation seen;
  MachineFacts machine;
  machine.allowed_cpus = 2;
  EXPECT_TRUE(find_traps(settings, seen, machine).empty());

  settings.num_workers = 8;
  settings.precision = "bf16-mixed";
  machine.gemm_fp32_gflops = 339;
  machine.gemm_bf16_gflops = 57;
  seen.step_seconds = 0.1;
  seen.stage_seconds_per_step[static_cast<size_t>(measure::Stage::Read)] = 0.0004;
  machine.disk_kind = "hdd";
  std::vector<std::string> ids;
  for (const Trap& trap : find_traps(settings, seen, machine)) ids.push_back(trap.id);
  EXPECT_THAT(ids, testing::ElementsAre("slow_precision", "workers_over_cores", "workers_not_needed", "slow_disk"));

  machine.gemm_bf16_gflops = 900;  // a machine with bf16 units: the same setting is no trap
  EXPECT_EQ(find_traps(settings, seen, machine).size(), 3u);
}

}  // namespace
}  // namespace redline::doctor
