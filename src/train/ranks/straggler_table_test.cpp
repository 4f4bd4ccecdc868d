#include "train/ranks/straggler_table.h"

#include <gtest/gtest.h>

namespace redline::train {
namespace {

OwnTime own(double wait, double forward, double cpu = 0.02) {
  OwnTime time;
  time.parts[0] = wait;
  time.parts[2] = forward;
  time.cpu = cpu;
  return time;
}

// Windows until something is said; 0: nothing in four.
int windows_until(StragglerTable& table, const std::vector<OwnTime>& ranks, std::optional<Straggler>& said) {
  for (int window = 1; window <= 4; ++window)
    for (int step = 0; step < StragglerTable::kWindowSteps; ++step) {
      for (size_t r = 0; r < ranks.size(); ++r) table.add(static_cast<int>(r), ranks[r]);
      said = table.judge();
      if (said) return window;
    }
  return 0;
}

TEST(StragglerTable, NamesTheRankAndWhatIsSlower) {
  StragglerTable table(3);
  std::optional<Straggler> said;
  EXPECT_EQ(windows_until(table, {own(0.001, 0.02), own(0.015, 0.02), own(0.001, 0.021)}, said), 2)
      << "the same in two windows";
  EXPECT_EQ(said->rank, 1);
  EXPECT_EQ(said->part, "wait");
  EXPECT_NEAR(said->own_seconds, 0.035, 1e-9);
  EXPECT_NEAR(said->others_seconds, 0.0215, 1e-9);
  EXPECT_NE(said->sentence().find("waits for its data"), std::string::npos);
  EXPECT_EQ(windows_until(table, {own(0.001, 0.02), own(0.015, 0.02), own(0.001, 0.021)}, said), 0) << "said once";
}

TEST(StragglerTable, TellsAStarvedRankFromOneWithMoreWork) {
  std::optional<Straggler> said;
  StragglerTable starved(2);
  EXPECT_EQ(windows_until(starved, {own(0, 0.02, 0.02), own(0, 0.04, 0.021)}, said), 2);
  EXPECT_EQ(said->rank, 1);
  EXPECT_TRUE(said->starved);
  EXPECT_NE(said->sentence().find("something else on its machine"), std::string::npos);
  StragglerTable busy(2);
  EXPECT_EQ(windows_until(busy, {own(0, 0.02, 0.02), own(0, 0.04, 0.04)}, said), 2);
  EXPECT_FALSE(said->starved);
}

TEST(StragglerTable, SaysNothingOfEqualOrTinyDifferences) {
  std::optional<Straggler> said;
  StragglerTable equal(2), tiny(2), alternating(2);
  EXPECT_EQ(windows_until(equal, {own(0, 0.02), own(0.002, 0.02)}, said), 0) << "10 %";
  EXPECT_EQ(windows_until(tiny, {own(0, 1e-4), own(0, 3e-4)}, said), 0) << "a fifth of a millisecond";
  for (int window = 0; window < 6; ++window)
    for (int step = 0; step < StragglerTable::kWindowSteps; ++step) {
      alternating.add(0, own(0, window % 2 == 0 ? 0.04 : 0.02));
      alternating.add(1, own(0, window % 2 == 0 ? 0.02 : 0.04));
      EXPECT_FALSE(alternating.judge()) << "uneven batches, not a rank";
    }
}

TEST(StragglerTable, WaitsForStepsThatWereDivided) {
  StragglerTable table(2);
  for (int step = 0; step < 1000; ++step) {
    if (step % 500 == 0) table.add(0, own(0, 0.02));
    table.add(1, own(0, 0.04));
    EXPECT_FALSE(table.judge());
  }
}

}  // namespace
}  // namespace redline::train
