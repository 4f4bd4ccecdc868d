#include "train/cadences.h"

#include <gtest/gtest.h>

#include "train/loop/trainer.h"

namespace redline::train {
namespace {

TEST(CadencesPerStep, CountsCadencesAsTheLoopDoes) {
  LoopSettings settings;
  settings.cadence.log_every_n_steps = 10;
  settings.cadence.val_check_interval.count = 40;  // batches
  settings.cadence.batches_per_step = 2;
  settings.save_on_validation = true;
  settings.save_interval.every_steps = 50;
  settings.save_every_n_epochs = 4;
  const measure::PerCadence per_step = cadences_per_step(settings, 100);
  EXPECT_NEAR(per_step.log, 0.1, 1e-9);
  EXPECT_NEAR(per_step.validate, 1.0 / 20, 1e-9);
  EXPECT_NEAR(per_step.checkpoint, 1.0 / 20 + 1.0 / 50 + 1.0 / 400, 1e-9);
  settings.cadence.validation = false;
  EXPECT_EQ(cadences_per_step(settings, 100).validate, 0);
}

TEST(CadencesPerStep, CheckpointsThatFollowAClockAreCountedWhereTheirCostIsKnown) {
  LoopSettings settings;
  settings.save_on_validation = false;
  settings.save_interval.every_seconds = 100;
  EXPECT_EQ(cadences_per_step(settings, 100).checkpoint, 0);
  EXPECT_NEAR(cadences_per_step(settings, 100, 1.0, 0.5).checkpoint, 0.5 / 100, 1e-12);
}

}  // namespace
}  // namespace redline::train
