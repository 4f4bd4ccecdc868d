#include "train/checkpoint/interval.h"

#include <gtest/gtest.h>

namespace redline::train {
namespace {

TEST(CheckpointInterval, Table) {
  const IntervalPolicy steps{.every_steps = 100}, seconds{.every_seconds = 600.0},
      both{.every_steps = 100, .every_seconds = 600.0}, automatic{};
  IntervalPolicy failures;
  failures.mean_time_between_failures_seconds = 3600.0;
  struct Row {
    const char* why;
    const IntervalPolicy& policy;
    IntervalInput input;
    bool expected;
  };
  const Row rows[] = {
      {"steps not reached", steps, {.steps_since_save = 99, .seconds_since_save = 1e6}, false},
      {"steps reached", steps, {.steps_since_save = 100}, true},
      {"steps reached late, after a busy writer", steps, {.steps_since_save = 130}, true},
      {"writer busy", steps, {.steps_since_save = 100, .writer_busy = true}, false},
      {"no step since the last save", seconds, {.steps_since_save = 0, .seconds_since_save = 1e6}, false},
      {"time not reached", seconds, {.steps_since_save = 5, .seconds_since_save = 599}, false},
      {"time reached", seconds, {.steps_since_save = 5, .seconds_since_save = 600}, true},
      {"either of two: steps", both, {.steps_since_save = 100, .seconds_since_save = 1}, true},
      {"either of two: time", both, {.steps_since_save = 1, .seconds_since_save = 601}, true},
      {"automatic, nothing measured yet: the shortest",
       automatic,
       {.steps_since_save = 1, .seconds_since_save = 10},
       true},
      {"automatic, too early", automatic, {.steps_since_save = 1, .seconds_since_save = 9.9}, false},
      {"automatic: 0.6 s at 3 % is 20 s",
       automatic,
       {.steps_since_save = 1, .seconds_since_save = 19.9, .stall_seconds = 0.6},
       false},
      {"automatic: 0.6 s at 3 % is 20 s",
       automatic,
       {.steps_since_save = 1, .seconds_since_save = 20.1, .stall_seconds = 0.6},
       true},
      {"slowdown counts as cost",
       automatic,
       {.steps_since_save = 1, .seconds_since_save = 39, .stall_seconds = 0.6, .slowdown_seconds = 0.6},
       false},
      {"a slow disk may stretch past the longest: 90 s at 3 % is 3000 s",
       automatic,
       {.steps_since_save = 1, .seconds_since_save = 2000, .stall_seconds = 90},
       false},
      {"Young: sqrt(2 * 0.5 * 3600) = 60 s",
       failures,
       {.steps_since_save = 1, .seconds_since_save = 59, .stall_seconds = 0.5},
       false},
      {"Young: sqrt(2 * 0.5 * 3600) = 60 s",
       failures,
       {.steps_since_save = 1, .seconds_since_save = 61, .stall_seconds = 0.5},
       true},
  };
  for (const Row& row : rows) EXPECT_EQ(should_save(row.policy, row.input), row.expected) << row.why;
}

TEST(CheckpointInterval, OverheadStaysUnderTheLimit) {
  const IntervalPolicy policy;
  for (double cost = 0.001; cost < 200; cost *= 1.7) {
    IntervalInput input;
    input.stall_seconds = cost;
    EXPECT_LE(cost / automatic_interval_seconds(policy, input), policy.overhead_limit * 1.0001) << cost;
  }
}

}  // namespace
}  // namespace redline::train
