#include "models/sequence_vae/kl_schedule.h"

#include <algorithm>
#include <cmath>

namespace redline::models::sequence_vae {

config::Table<KlScheduleConfig> KlScheduleConfig::fields() {
  using config::Effect;
  config::Table<KlScheduleConfig> table;
  table.add("kind", &KlScheduleConfig::kind, "How the weight of the KL term moves over the run.")
      .choices({"constant", "linear", "cyclical"})
      .effect(Effect::Optimisation);
  table.add("weight", &KlScheduleConfig::weight, "Full weight of the KL term (beta).").at_least(0.0);
  table.add("start", &KlScheduleConfig::start, "linear: share of the full weight at the first step.").range(0.0, 1.0);
  table.add("warm_up_steps", &KlScheduleConfig::warm_up_steps, "linear: steps until the full weight.")
      .counts(config::Counts::Steps)
      .at_least(1);
  table.add("num_cycles", &KlScheduleConfig::num_cycles, "cyclical: how often the weight rises from zero.").at_least(1);
  table.add("ratio", &KlScheduleConfig::ratio, "cyclical: share of a cycle in which the weight rises.").range(0.0, 1.0);
  table
      .add("total_steps", &KlScheduleConfig::total_steps,
           "cyclical: steps of all cycles together; later it stays full.")
      .counts(config::Counts::Steps)
      .at_least(1);
  return table;
}

double kl_weight(const KlScheduleConfig& schedule, int64_t steps_done) {
  if (schedule.kind == "linear") {
    const double rise = (1.0 - schedule.start) / static_cast<double>(schedule.warm_up_steps);
    return schedule.weight * std::min(1.0, schedule.start + rise * static_cast<double>(steps_done + 1));
  }
  if (schedule.kind == "cyclical" && steps_done < schedule.total_steps) {
    const double period = static_cast<double>(schedule.total_steps) / static_cast<double>(schedule.num_cycles);
    // The cycle whose first step, rounded down, is the last one not after this step.
    auto cycle = static_cast<int64_t>(static_cast<double>(steps_done + 1) / period);
    while (cycle > 0 && std::floor(static_cast<double>(cycle) * period) > static_cast<double>(steps_done)) --cycle;
    const double inside = static_cast<double>(steps_done) - std::floor(static_cast<double>(cycle) * period);
    const double rising = period * schedule.ratio;
    return schedule.weight * (inside < rising ? inside / rising : 1.0);
  }
  return schedule.weight;
}

bool kl_weight_is_full(const KlScheduleConfig& schedule, int64_t steps_done) {
  return kl_weight(schedule, steps_done) >= schedule.weight * (1.0 - 1e-9);
}

}  // namespace redline::models::sequence_vae
