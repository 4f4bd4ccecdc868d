#include "train/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_ops.h"

namespace redline::train {
namespace {

Schedule noam() {
  Schedule s;
  s.kind = ScheduleKind::Noam;
  s.base_lr = 5.0;
  s.d_model = 512;
  s.warmup_steps = 25000;
  s.min_lr = 1e-6;
  return s;
}

TEST(Schedule, NoamPeaksWhereTheSpecSays) {
  const Schedule s = noam();
  EXPECT_NEAR(s.at(25000), 1.3975e-3, 5e-8);
  EXPECT_EQ(s.at(0), s.at(1));  // s = max(1, last)
  EXPECT_LT(s.at(24999), s.at(25000));
  EXPECT_GT(s.at(25000), s.at(25001));
  EXPECT_EQ(s.at(int64_t{1} << 60), 1e-6);
  EXPECT_LT(s.at(1), 1e-6);  // the floor holds only after the warm-up
}

TEST(Schedule, PolyFollowsMmcv) {
  Schedule s;
  s.kind = ScheduleKind::Poly;
  s.base_lr = 6e-5;
  s.max_steps = 160000;
  s.warmup_steps = 1500;
  s.warmup_start_factor = 1e-6;
  // lr = regular * (1 - (1 - it/warmup)(1 - ratio)), regular = base (1 - it/max)
  EXPECT_NEAR(s.at(0), 6e-5 * 1e-6, 1e-20);  // mmcv takes the difference of two numbers near 1, too
  EXPECT_NEAR(s.at(750), 6e-5 * (1 - 750.0 / 160000) * (1 - 0.5 * (1 - 1e-6)), 1e-18);
  EXPECT_DOUBLE_EQ(s.at(1500), 6e-5 * (1 - 1500.0 / 160000));
  EXPECT_DOUBLE_EQ(s.at(80000), 3e-5);
  EXPECT_EQ(s.at(160000), 0.0);
  EXPECT_EQ(s.at(200000), 0.0);
  s.power = 0.9;
  s.min_lr = 1e-6;
  EXPECT_NEAR(s.at(40000), (6e-5 - 1e-6) * std::pow(0.75, 0.9) + 1e-6, 1e-18);
}

TEST(Schedule, PolyCountsTheMicroIterationThatMakesTheStep) {
  Schedule s;
  s.kind = ScheduleKind::Poly;
  s.base_lr = 1.0;
  s.max_steps = 100;
  s.micro_per_step = 4;
  EXPECT_DOUBLE_EQ(s.at(0), 1 - 3.0 / 100);
  EXPECT_DOUBLE_EQ(s.at(24), 1 - 99.0 / 100);
}

TEST(Schedule, CosineTableMatchesConvNeXt) {
  Schedule s;
  s.kind = ScheduleKind::Cosine;
  s.base_lr = 4e-3;
  s.min_lr = 1e-6;
  s.warmup_steps = 5;
  s.max_steps = 15;
  const std::vector<double> warm = {0.0, 1e-3, 2e-3, 3e-3, 4e-3};
  for (size_t i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(s.at(static_cast<int64_t>(i)), warm[i]);
  EXPECT_DOUBLE_EQ(s.at(5), 4e-3);
  EXPECT_NEAR(s.at(10), 1e-6 + 0.5 * (4e-3 - 1e-6), 1e-15);
  EXPECT_GT(s.at(14), 1e-6);  // never quite reaches it within the table
  EXPECT_DOUBLE_EQ(s.at(15), 1e-6);
}

TEST(Schedule, AgreesWithTrajectoriesRecordedFromNeMoAndTorch) {
  const auto recorded = nlohmann::json::parse(read_file(REDLINE_FIXTURES "/trajectories/schedules.json"));
  ASSERT_GE(recorded.size(), 4u);
  for (const auto& item : recorded) {
    Schedule s;
    s.kind = parse_schedule_kind(item["name"]);
    s.base_lr = item["lr"];
    s.min_lr = item["min_lr"];
    s.warmup_steps = item["warmup_steps"];
    s.max_steps = item["max_steps"];
    s.constant_steps = item.value("constant_steps", 0);
    s.d_model = item.value("d_model", 1);
    const auto& values = item["values"];
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(s.at(static_cast<int64_t>(i)), values[i].get<double>(), 1e-12 * s.base_lr)
          << item["label"] << " at " << i;
  }
}

// Recorded from torch 2.13: OneCycleLR(max_lr=0.4, total_steps=20, pct_start=0.3).
TEST(Schedule, OneCycleIsPyTorchs) {
  Schedule s;
  s.kind = ScheduleKind::OneCycle;
  s.base_lr = 0.4;
  s.max_steps = 20;
  const double want[] = {0.016,         0.05266873708, 0.1486687371,  0.2673312629,   0.3633312629,
                         0.4,           0.3949856025,  0.3801938528,  0.356366471,    0.3246982616,
                         0.2867772007,  0.2445048088,  0.2000008,     0.1554967912,   0.1132243993,
                         0.07530333842, 0.04363512897, 0.01980774719, 0.005015997506, 1.6e-06};
  for (int64_t i = 0; i < 20; ++i) EXPECT_NEAR(s.at(i), want[i], 1e-9) << i;
  EXPECT_NEAR(s.at(100), 1.6e-06, 1e-12) << "beyond its end it stays there";
}

TEST(Schedule, ExponentialMultipliesEveryEpochAndStopsAtItsFloor) {
  Schedule s;
  s.kind = ScheduleKind::Exponential;
  s.base_lr = 0.8;
  s.gamma = 0.5;
  s.decay_steps = 10;
  s.min_lr = 0.15;
  EXPECT_DOUBLE_EQ(s.at(9), 0.8);
  EXPECT_DOUBLE_EQ(s.at(10), 0.4);
  EXPECT_DOUBLE_EQ(s.at(29), 0.2);
  EXPECT_DOUBLE_EQ(s.at(1000), 0.15);
  s.warmup_steps = 3;
  EXPECT_DOUBLE_EQ(s.at(0), 0.2);
  EXPECT_DOUBLE_EQ(s.at(12), 0.8) << "epochs count from the end of the warm-up";
}

TEST(Schedule, ASweepRisesByEqualFactors) {
  Schedule s;
  s.kind = ScheduleKind::Sweep;
  s.min_lr = 1e-6;
  s.base_lr = 1.0;
  s.max_steps = 7;
  for (int64_t i = 0; i < 7; ++i) EXPECT_NEAR(s.at(i) / std::pow(10.0, static_cast<double>(i) - 6), 1.0, 1e-12);
}

TEST(Schedule, UnknownNameListsTheKnownOnes) {
  EXPECT_EQ(parse_schedule_kind("NoamAnnealing"), ScheduleKind::Noam);
  try {
    parse_schedule_kind("nooam");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("CosineAnnealing"));
  }
}

TEST(Schedule, LearningRateScalesWithTheBatch) {
  EXPECT_DOUBLE_EQ(learning_rate_scale("linear", 1024, 256), 4.0);
  EXPECT_DOUBLE_EQ(learning_rate_scale("sqrt", 1024, 256), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate_scale("none", 1024, 256), 1.0);
}

}  // namespace
}  // namespace redline::train
