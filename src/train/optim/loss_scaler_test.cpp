#include "train/optim/loss_scaler.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "core/file_ops.h"

namespace redline::train {
namespace {

TEST(LossScaler, FollowsTheTrajectoryOfTorchAmp) {
  const auto facts = nlohmann::json::parse(read_file(REDLINE_FIXTURES "/convnext/facts.json"))["loss_scaler"];
  LossScaler scaler(
      {{}, facts["init_scale"], facts["growth_factor"], facts["backoff_factor"], facts["growth_interval"]}, true);
  float parameter = 1.0f;
  for (size_t i = 0; i < facts["overflow_at"].size(); ++i) {
    const bool overflow = facts["overflow_at"][i].get<int>() != 0;
    // loss = sum of squares: gradient 2p, scaled before and unscaled after backward.
    const float unscaled =
        2.0f * parameter * static_cast<float>(scaler.scale()) * static_cast<float>(1.0 / scaler.scale());
    if (!overflow) parameter -= facts["sgd_lr"].get<float>() * unscaled;
    scaler.update(overflow);
    EXPECT_EQ(scaler.scale(), facts["scale_after"][i].get<double>()) << i;
    EXPECT_FLOAT_EQ(parameter, facts["second_parameter_after"][i].get<float>()) << i;
  }
}

TEST(LossScaler, StaticScaleNeverMoves) {
  LossScaler scaler({"512", 4.0, 2.0, 0.5, 1}, true);
  for (bool overflow : {false, true, false, true}) scaler.update(overflow);
  EXPECT_EQ(scaler.scale(), 512.0);
  scaler.restore(4.0, 1);
  EXPECT_EQ(scaler.scale(), 512.0);
}

TEST(LossScaler, GrowthStopsAtTheEndOfFloat) {
  LossScaler scaler({"dynamic", static_cast<double>(std::numeric_limits<float>::max()) / 1.5, 2.0, 0.5, 1}, true);
  const double before = scaler.scale();
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), before);
}

TEST(LossScaler, DisabledIsOneAndRestoreContinues) {
  LossScaler off;
  off.update(true);
  EXPECT_EQ(off.scale(), 1.0);
  LossScaler a({{}, 1024, 2, 0.5, 3}, true), b({{}, 1024, 2, 0.5, 3}, true);
  a.update(false);
  a.update(false);
  b.restore(a.scale(), a.growth_tracker());
  a.update(false);
  b.update(false);
  EXPECT_EQ(a.scale(), 2048.0);
  EXPECT_EQ(b.scale(), 2048.0);
}

}  // namespace
}  // namespace redline::train
