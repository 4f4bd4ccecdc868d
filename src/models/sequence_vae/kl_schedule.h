// The weight of the KL term as a function of optimiser steps done: no clock, no state.
#pragma once

#include <cstdint>
#include <string>

#include "config/fields.h"

namespace redline::models::sequence_vae {

struct KlScheduleConfig {
  std::string kind = "constant";  // constant, linear, cyclical
  double weight = 1.0;            // the full weight
  double start = 0.0;             // linear: where it begins
  int64_t warm_up_steps = 1000;   // linear: steps until the full weight
  int64_t num_cycles = 4;         // cyclical: M
  double ratio = 0.5;             // cyclical: share of a cycle that rises
  int64_t total_steps = 10000;    // cyclical: steps of all cycles together; afterwards the weight stays full

  static config::Table<KlScheduleConfig> fields();
};

// Weight of the loss of the step that follows `steps_done` committed ones.
// linear: the weight grows *before* each step's loss (He et al. 2019, jxhe/vae-lagging-encoder).
// cyclical: Fu et al. 2019; cycle c begins at step floor(c * total / cycles).
double kl_weight(const KlScheduleConfig& schedule, int64_t steps_done);
// Whether the weight is at its full value: a small KL means something only then.
bool kl_weight_is_full(const KlScheduleConfig& schedule, int64_t steps_done);

}  // namespace redline::models::sequence_vae
