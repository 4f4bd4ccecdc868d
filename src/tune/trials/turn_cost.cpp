#include "tune/trials/turn_cost.h"

#include <algorithm>

namespace redline::tune {

using measure::Phase;

TurnCost& TurnCost::operator+=(const TurnCost& other) {
  seconds += other.seconds;
  samples += other.samples;
  items += other.items;
  padded_items += other.padded_items;
  steps += other.steps;
  return *this;
}

TurnCost turn_cost(std::span<const measure::StepRow> rows) {
  TurnCost cost;
  for (const measure::StepRow& row : rows) {
    int64_t ns = row.wall_ns;
    for (Phase phase : {Phase::Log, Phase::Monitor, Phase::Validate, Phase::Checkpoint})
      ns -= row.phase_ns[static_cast<size_t>(phase)];
    cost.seconds += static_cast<double>(ns) * 1e-9;
    cost.samples += row.samples;
    cost.items += static_cast<double>(row.items);
    cost.padded_items += static_cast<double>(row.padded_items);
    ++cost.steps;
  }
  return cost;
}

double seconds_per_sample(const TurnCost& turn, double cadence, double items_per_sample) {
  const double seconds = turn.seconds + cadence * static_cast<double>(turn.steps);
  if (items_per_sample > 0 && turn.items > 0) {
    // The cadences come per step, whatever its samples' lengths are.
    return turn.seconds / turn.items * items_per_sample + cadence * static_cast<double>(turn.steps) / turn.samples;
  }
  return turn.samples > 0 ? seconds / turn.samples : 0;
}

}  // namespace redline::tune
