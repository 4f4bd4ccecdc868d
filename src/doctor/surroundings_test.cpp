#include "doctor/surroundings.h"

#include <gtest/gtest.h>

namespace redline::doctor {
namespace {

using measure::SurroundingsWindow;

SurroundingsWindow quiet_window(int64_t first, int64_t last, double seconds = 1) {
  SurroundingsWindow w;
  w.first_step = first, w.last_step = last;
  w.seconds = seconds;
  w.cores = 2, w.own = 1.9;
  w.others = 0.02, w.stolen = 0.0, w.waited = 0.01, w.throttled = 0.0, w.memory_pressure = 0.0;
  return w;
}

SurroundingsWindow with_neighbour(int64_t first, int64_t last, double seconds = 1) {
  SurroundingsWindow w = quiet_window(first, last, seconds);
  w.own = 1.1, w.others = 0.9, w.waited = 0.5;
  return w;
}

TEST(Surroundings, ANeighbourDisturbsOnlyWhereThreadsWait) {
  EXPECT_FALSE(disturbed(quiet_window(1, 2)));
  EXPECT_TRUE(disturbed(with_neighbour(1, 2)));
  SurroundingsWindow beside = with_neighbour(1, 2);  // it has a core of its own
  beside.waited = 0.01;
  EXPECT_FALSE(disturbed(beside));
  SurroundingsWindow unseen = with_neighbour(1, 2);
  unseen.waited.reset();
  EXPECT_TRUE(disturbed(unseen));
  SurroundingsWindow own = quiet_window(1, 2);  // more threads than cores, nobody else
  own.waited = 1.5;
  EXPECT_FALSE(disturbed(own));
}

TEST(Surroundings, QuotaStealAndSwappingDisturb) {
  for (auto SurroundingsWindow::*which : {&SurroundingsWindow::throttled, &SurroundingsWindow::stolen}) {
    SurroundingsWindow w = quiet_window(1, 2);
    w.*which = 0.3;
    EXPECT_TRUE(disturbed(w));
  }
  SurroundingsWindow w = quiet_window(1, 2);
  w.memory_pressure = 0.4;
  EXPECT_FALSE(disturbed(w));  // somebody else of the machine may stall
  w.major_faults = 300;
  EXPECT_TRUE(disturbed(w));
}

TEST(Surroundings, WhatIsLostIsSharedOut) {
  const auto neighbour = summarise(std::vector{with_neighbour(1, 9)});
  EXPECT_DOUBLE_EQ(neighbour->lost_to_others(), 1 - 1.1 / 1.6);  // it had 1.1 cores, and wanted 0.5 more
  EXPECT_DOUBLE_EQ(neighbour->lost_to_itself(), 0);
  SurroundingsWindow own = quiet_window(1, 9);
  own.waited = 0.6;
  const auto threads = summarise(std::vector{own});
  EXPECT_DOUBLE_EQ(threads->lost_to_others(), 0);
  EXPECT_NEAR(threads->lost_to_itself(), 0.58, 1e-9);
  SurroundingsWindow quota = quiet_window(1, 9);
  quota.own = 1.0, quota.throttled = 0.9, quota.waited = 0.9;
  EXPECT_DOUBLE_EQ(summarise(std::vector{quota})->lost_to_quota(), 1 - 1.0 / 1.9);
  SurroundingsWindow stolen = quiet_window(1, 9);  // what the hypervisor took counts once
  stolen.own = 1.2, stolen.others = 0.0, stolen.stolen = 0.4, stolen.waited = 0.0;
  EXPECT_DOUBLE_EQ(summarise(std::vector{stolen})->lost_to_others(), 1 - 1.2 / 1.6);
  SurroundingsWindow stopped = quiet_window(1, 9);
  stopped.stopped = 0.3;
  EXPECT_DOUBLE_EQ(summarise(std::vector{stopped})->lost_to_stops(), 0.3);
  EXPECT_TRUE(disturbed(stopped));
  stopped.throttled = 0.9, stopped.own = 1.0;  // a quota explains it
  EXPECT_DOUBLE_EQ(summarise(std::vector{stopped})->lost_to_stops(), 0);
  EXPECT_EQ(summarise({}), std::nullopt);
}

// What is lost to one cause is not lost to another as well.
TEST(Surroundings, NothingIsCountedTwice) {
  SurroundingsWindow stolen = quiet_window(1, 9);  // the heartbeat's core was taken, too
  stolen.own = 1.0, stolen.others = 0.0, stolen.stolen = 1.0, stolen.waited = 0.0, stolen.stopped = 0.5;
  EXPECT_DOUBLE_EQ(summarise(std::vector{stolen})->lost_to_others(), 0.5);
  EXPECT_DOUBLE_EQ(summarise(std::vector{stolen})->lost_to_stops(), 0);
  stolen.stopped = 0.8;  // more than that
  EXPECT_NEAR(summarise(std::vector{stolen})->lost_to_stops(), 0.3, 1e-9);

  SurroundingsWindow both = quiet_window(1, 9);  // a neighbour on the core that the quota leaves free
  both.own = 1.0, both.others = 0.4, both.waited = 0.7, both.throttled = 0.7;
  EXPECT_DOUBLE_EQ(summarise(std::vector{both})->lost_to_others(), 0);
  EXPECT_GT(summarise(std::vector{both})->lost_to_quota(), 0.4);
  both.waited = 0.9;
  EXPECT_NEAR(summarise(std::vector{both})->lost_to_others(), 1 - 1.0 / 1.2, 1e-9);

  SurroundingsWindow crowd = quiet_window(1, 9);  // what was stolen is not what own threads waited for
  crowd.waited = 1.5, crowd.stolen = 0.5, crowd.others = 0.0, crowd.own = 1.4;
  EXPECT_NEAR(*summarise(std::vector{crowd})->waited, 1.5, 1e-9);
  EXPECT_NEAR(summarise(std::vector{crowd})->lost_to_itself(), 0.95, 1e-9);  // at most
  crowd.waited = 0.6;
  EXPECT_NEAR(summarise(std::vector{crowd})->lost_to_itself(), 0.6, 1e-9);
}

TEST(Surroundings, WindowsCountByTheirTime) {
  const auto sum = summarise(std::vector{quiet_window(1, 10, 3), with_neighbour(11, 12, 1)});
  EXPECT_DOUBLE_EQ(sum->disturbed, 0.25);
  EXPECT_NEAR(*sum->others, 0.75 * 0.02 + 0.25 * 0.9, 1e-9);
  EXPECT_EQ(busy_sentence(*sum), "The machine was busy for 25 % of this run: other processes used 0.2 of its 2 cores.");
  EXPECT_EQ(busy_sentence(*summarise(std::vector{quiet_window(1, 10)})), "");
}

TEST(Surroundings, DisturbedStepsAreLeftOutWhileEnoughAreLeft) {
  std::vector<measure::StepRow> rows(50);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].step = static_cast<int64_t>(i + 1);
  const std::vector<SurroundingsWindow> windows = {quiet_window(1, 30), with_neighbour(31, 50)};
  const auto left = undisturbed(rows, windows);
  ASSERT_EQ(left.size(), 30u);
  EXPECT_EQ(left.back().step, 30);
  EXPECT_EQ(undisturbed(rows, std::vector{with_neighbour(1, 40)}).size(), 50u);  // ten are too few to judge by
}

}  // namespace
}  // namespace redline::doctor
