// What the tuner maximises: samples per second of the whole run, validation, checkpoints, logging and monitoring
// included. A trial of a few steps cannot hold a validation every 1000 steps, so the two parts are joined here: the
// measured steps without cadences, and what each cadence costs times how often it comes (measure/cadences.h).
//
// Times are compared per real item (frame, token) where batches have items: a short trial that happened to draw long
// samples would otherwise look slow.
#pragma once

#include <span>

#include "measure/run_record.h"

namespace redline::tune {

// Rows of one turn, without what belongs to cadences.
struct TurnCost {
  double seconds = 0, samples = 0, items = 0, padded_items = 0;
  int64_t steps = 0;
  TurnCost& operator+=(const TurnCost& other);
};
TurnCost turn_cost(std::span<const measure::StepRow> rows);

// Seconds per sample of the whole run. items_per_sample is the data set's mean (the reference's, as far as seen); 0:
// samples are counted as they came.
double seconds_per_sample(const TurnCost& turn, double cadence_seconds_per_step, double items_per_sample);

}  // namespace redline::tune
