// The formulas under the candidates: step time with workers, and what another precision or less padding would gain. The
// tuner's ledger keeps these numbers beside what was measured, so every formula here is held to account.
#pragma once

#include "doctor/observation.h"

namespace redline::doctor {

// Step time with `workers` worker threads, from the compute and loader work of one step. On a CPU the workers take
// their time from the training threads; on a GPU they overlap with it.
struct LoaderModel {
  double compute_seconds = 0;  // of a step, without waiting
  double loader_seconds = 0;   // worker-seconds of a step
  int threads = 1;             // intra-op threads of training
  int cores = 1;
  bool accelerator = false;
};
double predicted_step_seconds(const LoaderModel& model, int workers);

// Speed that is gained when this share of the time goes.
double removal_gain(double share);

// Share of a step that does not grow with the batch: optimiser, bookkeeping, and what each piece costs however small.
double fixed_share(const Observation& seen);
// Share of a step in forward and backward.
double compute_share(const Observation& seen);

// Speed gain of another precision: the part of the step that is matrix work, at the measured rates.
double predicted_precision_gain(const Observation& seen, double rate_now, double rate_then);
// Speed gain of removing `removed` of the padding (0..1): of what padding was seen to cost (Observation::costs), else
// as if a padded item cost as much as a real one.
double predicted_padding_gain(const Observation& seen, double removed);

}  // namespace redline::doctor
