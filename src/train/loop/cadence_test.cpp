#include "train/loop/cadence.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace redline::train {
namespace {

// Steps of two epochs at which validation is due.
std::vector<int64_t> validations(const CadenceSettings& s, int64_t steps_per_epoch, int64_t epochs = 2) {
  std::vector<int64_t> due;
  int64_t step = 0;
  for (int64_t epoch = 0; epoch < epochs; ++epoch)
    for (int64_t i = 1; i <= steps_per_epoch; ++i)
      if (decide_cadence(s, {++step, epoch, i, steps_per_epoch}).validate) due.push_back(step);
  return due;
}

TEST(Cadence, ValidationTable) {
  struct Case {
    const char* interval;
    int64_t every_n_epoch, batches_per_step, steps_per_epoch;
    std::vector<int64_t> due;
  };
  for (const Case& c : std::vector<Case>{
           {"1.0", 1, 1, 10, {10, 20}},
           {"0.5", 1, 1, 10, {5, 10, 15, 20}},
           {"0.3", 1, 1, 10, {3, 6, 9, 13, 16, 19}},
           {"0.01", 1, 1, 4, {1, 2, 3, 4, 5, 6, 7, 8}},
           {"4", 1, 1, 10, {4, 8, 14, 18}},
           {"10", 1, 1, 10, {10, 20}},
           {"15", 1, 1, 10, {15}},  // longer than an epoch: counted across
           {"4", 0, 1, 10, {4, 8, 12, 16, 20}},
           {"1.0", 2, 1, 10, {20}},
           {"4", 1, 2, 5, {2, 4, 7, 9}},  // batches, two per step
           {"3", 1, 2, 5, {2, 3, 5, 7, 8, 10}},
       }) {
    CadenceSettings s;
    s.val_check_interval = parse_count_or_share(c.interval, "f");
    s.check_val_every_n_epoch = c.every_n_epoch;
    s.batches_per_step = c.batches_per_step;
    EXPECT_EQ(validations(s, c.steps_per_epoch), c.due)
        << c.interval << " " << c.every_n_epoch << " " << c.batches_per_step;
  }
  CadenceSettings none;
  none.validation = false;
  EXPECT_TRUE(validations(none, 10).empty());
}

TEST(Cadence, TheRateOfValidationsIsWhatALongRunHas) {
  struct Case {
    const char* interval;
    int64_t every_n_epoch, batches_per_step, steps_per_epoch;
  };
  for (const Case& c : std::vector<Case>{{"1.0", 1, 1, 10},
                                         {"0.3", 1, 1, 10},
                                         {"0.01", 1, 1, 4},
                                         {"4", 1, 1, 10},
                                         {"2500", 1, 1, 100},
                                         {"2500", 1, 2, 1000},
                                         {"4", 0, 1, 10},
                                         {"1.0", 5, 1, 1000},
                                         {"0.5", 3, 4, 7},
                                         {"3", 1, 2, 5},
                                         {"1", 1, 4, 6},
                                         {"3", 0, 4, 6}}) {
    CadenceSettings s;
    s.val_check_interval = parse_count_or_share(c.interval, "f");
    s.check_val_every_n_epoch = c.every_n_epoch;
    s.batches_per_step = c.batches_per_step;
    const int64_t epochs = 150'000 / c.steps_per_epoch;
    const auto counted = static_cast<double>(validations(s, c.steps_per_epoch, epochs).size());
    EXPECT_NEAR(validations_per_step(s, c.steps_per_epoch) * static_cast<double>(epochs * c.steps_per_epoch), counted,
                1.0 + 1e-4 * counted)
        << c.interval << " " << c.every_n_epoch << " " << c.batches_per_step;
  }
  CadenceSettings none;
  none.validation = false;
  EXPECT_EQ(validations_per_step(none, 10), 0);
}

TEST(Cadence, LogMonitorPlotAndEpochEnd) {
  CadenceSettings s;
  s.log_every_n_steps = 10;
  s.monitor_every_steps = 4;
  s.plot_every_steps = 8;
  const auto at = [&](int64_t step) { return decide_cadence(s, {step, 0, step, 20}); };
  EXPECT_FALSE(at(9).log);
  EXPECT_TRUE(at(10).log);
  EXPECT_TRUE(at(4).monitor);
  EXPECT_FALSE(at(4).plot);
  EXPECT_TRUE(at(8).plot);
  EXPECT_FALSE(at(19).epoch_end);
  EXPECT_TRUE(at(20).epoch_end);
}

TEST(Cadence, WhatCountsEpochsComesAtTheirEnds) {
  CadenceSettings s;
  s.monitor_every_epochs = 2;
  s.plot_every_epochs = 3;
  const auto at = [&](int64_t epoch, int64_t step_in_epoch) {
    return decide_cadence(s, {epoch * 5 + step_in_epoch, epoch, step_in_epoch, 5});
  };
  EXPECT_FALSE(at(0, 5).epoch_monitor);
  EXPECT_TRUE(at(1, 5).epoch_monitor);
  EXPECT_FALSE(at(1, 4).epoch_monitor);
  EXPECT_FALSE(at(1, 5).epoch_plot);
  EXPECT_TRUE(at(2, 5).epoch_plot);
  EXPECT_FALSE(at(2, 5).epoch_monitor);
  EXPECT_FALSE(at(1, 5).monitor) << "steps are not asked for";
  s.monitor_every_epochs = 0;
  EXPECT_FALSE(at(1, 5).epoch_monitor);
}

TEST(Cadence, StopTable) {
  CadenceSettings s;
  EXPECT_EQ(decide_stop(s, 1000000, 1000, 1e9), StopReason::None);
  s.max_steps = 100;
  EXPECT_EQ(decide_stop(s, 99, 0, 0), StopReason::None);
  EXPECT_EQ(decide_stop(s, 100, 0, 0), StopReason::MaxSteps);
  s.max_epochs = 2;
  EXPECT_EQ(decide_stop(s, 50, 2, 0), StopReason::MaxEpochs);
  s.max_seconds = 60;
  EXPECT_EQ(decide_stop(s, 50, 1, 60), StopReason::MaxTime);
}

TEST(Cadence, CountsAndShares) {
  EXPECT_EQ(parse_count_or_share("2500", "f").of(10), 2500);
  EXPECT_EQ(parse_count_or_share("1", "f").of(10), 1);
  EXPECT_EQ(parse_count_or_share("1.0", "f").of(10), 10);
  EXPECT_EQ(parse_count_or_share("0.2", "f").of(10), 2);
  EXPECT_EQ(parse_count_or_share("0.01", "f").of(10), 1);
  EXPECT_EQ(parse_count_or_share("0", "f").of(10), 0);
  EXPECT_EQ(parse_count_or_share("0.0", "f").of(10), 0);
  EXPECT_EQ(parse_count_or_share("2500.0", "f").of(10), 2500);
  for (const char* bad : {"-1", "1.5", "half", "nan", "inf", "-inf", "1e30", ""})
    EXPECT_THROW(parse_count_or_share(bad, "f"), ConfigError) << bad;
  EXPECT_EQ(limited_steps(10, parse_count_or_share("1.0", "f"), 2), 10);
  EXPECT_EQ(limited_steps(10, parse_count_or_share("7", "f"), 2), 4);
  EXPECT_EQ(limited_steps(10, parse_count_or_share("1000", "f"), 2), 10);
}

TEST(Cadence, Words) {
  CadenceSettings s;
  EXPECT_EQ(validation_words(s, 10), "at the end of each epoch");
  s.val_check_interval = parse_count_or_share("0.5", "f");
  EXPECT_EQ(validation_words(s, 10), "every 5 steps");
  s.val_check_interval = parse_count_or_share("2500", "f");
  EXPECT_EQ(validation_words(s, 10), "every 2500 steps, counted across epochs");
  s.batches_per_step = 2;
  s.val_check_interval = parse_count_or_share("9223372036854775807", "f");
  EXPECT_EQ(validation_words(s, 10), "every 4611686018427387904 steps, counted across epochs");
  EXPECT_FALSE(decide_cadence(s, {1000000, 100000, 10, 10}).validate);
  s.validation = false;
  EXPECT_EQ(validation_words(s, 10), "never");
}

}  // namespace
}  // namespace redline::train
