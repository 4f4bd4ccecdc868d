#include "tune/objective.h"

#include <algorithm>

namespace redline::tune {

using measure::Phase;

CadenceRates cadence_rates(const train::CadenceSettings& settings, int64_t steps_per_epoch, bool saves_on_validation,
                           int64_t save_steps) {
  const int64_t epoch_steps = std::max<int64_t>(1, steps_per_epoch);
  // Whole epochs, so that a validation at an epoch's end is neither missed nor counted twice.
  const int64_t epochs = std::max<int64_t>(1, std::min<int64_t>(20'000, 2000 + epoch_steps) / epoch_steps);
  CadenceRates counts;
  int64_t step = 0;
  for (int64_t epoch = 0; epoch < epochs; ++epoch)
    for (int64_t i = 1; i <= epoch_steps; ++i) {
      const auto decision = train::decide_cadence(settings, {++step, epoch, i, epoch_steps});
      counts.log += decision.log;
      counts.monitor += decision.monitor;
      counts.validate += decision.validate;
      counts.checkpoint += decision.validate && saves_on_validation;
    }
  const auto steps = static_cast<double>(step);
  CadenceRates rates{counts.log / steps, counts.monitor / steps, counts.validate / steps, counts.checkpoint / steps};
  if (save_steps > 0) rates.checkpoint += 1.0 / static_cast<double>(save_steps);
  return rates;
}

double cadence_seconds_per_step(const CadenceCosts& costs, const CadenceRates& rates) {
  return costs.log * rates.log + costs.monitor * rates.monitor + costs.validate * rates.validate +
         costs.checkpoint * rates.checkpoint;
}

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
