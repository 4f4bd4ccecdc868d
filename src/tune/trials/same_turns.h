// Two trials in turns see the same samples: lengths differ so much that a few steps over others would compare the
// samples, not the settings. Pure.
#pragma once

#include <array>
#include <cstdint>

namespace redline::tune {

// Where a trial is in its data.
struct TurnSide {
  double samples_per_step = 1;
  int64_t epoch = 0, step = 0;  // steps done in that epoch
  int64_t steps_per_epoch = 1;
};

struct TurnStart {
  int64_t epoch = 0, step = 0;  // where the first turn of a block begins
  int64_t steps = 1;            // of one turn
};

// Turns of about `samples`, at least one step of either, from the first place at or after both where a step of both
// begins; the next epoch where this one has no such place.
std::array<TurnStart, 2> same_turns(const std::array<TurnSide, 2>& sides, double samples);

}  // namespace redline::tune
