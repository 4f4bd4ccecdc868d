#include "tune/trials/same_turns.h"

#include <gtest/gtest.h>

namespace redline::tune {
namespace {

struct Case {
  const char* what;
  TurnSide a, b;
  double samples;
  TurnStart expect_a, expect_b;
};

TEST(SameTurns, BothBeginAtTheSameSampleAndSeeAsMany) {
  const Case cases[] = {
      {"the same step stays where it is", {2, 0, 7, 100}, {2, 0, 7, 100}, 6, {0, 7, 3}, {0, 7, 3}},
      {"one that is new goes to where the other is", {2, 3, 7, 100}, {2, 0, 0, 100}, 6, {3, 7, 3}, {3, 7, 3}},
      {"a larger step begins where one of its own begins", {1, 0, 5, 100}, {8, 0, 0, 12}, 4.7, {0, 8, 8}, {0, 1, 1}},
      {"whichever is ahead leads", {1, 0, 5, 100}, {8, 0, 2, 12}, 4.7, {0, 16, 8}, {0, 2, 1}},
      {"a turn is a number of the larger steps", {2, 0, 0, 100}, {8, 0, 0, 25}, 27, {0, 0, 12}, {0, 0, 3}},
      {"at least one step of either", {16, 0, 0, 10}, {2, 0, 0, 80}, 1, {0, 0, 1}, {0, 0, 8}},
      {"no such step is left in this epoch", {1, 2, 97, 100}, {8, 2, 12, 12}, 8, {3, 0, 8}, {3, 0, 1}},
      {"no multiples: as near as it goes", {3, 0, 1, 100}, {4, 0, 0, 75}, 8, {0, 1, 3}, {0, 1, 2}},
  };
  for (const Case& c : cases) {
    const auto [a, b] = same_turns({c.a, c.b}, c.samples);
    EXPECT_EQ(a.epoch, c.expect_a.epoch) << c.what;
    EXPECT_EQ(a.step, c.expect_a.step) << c.what;
    EXPECT_EQ(a.steps, c.expect_a.steps) << c.what;
    EXPECT_EQ(b.epoch, c.expect_b.epoch) << c.what;
    EXPECT_EQ(b.step, c.expect_b.step) << c.what;
    EXPECT_EQ(b.steps, c.expect_b.steps) << c.what;
  }
}

}  // namespace
}  // namespace redline::tune
