// The formulas under the candidates: step time with workers, and what another precision or less padding would gain. The
// tuner's ledger keeps these numbers beside what was measured, so every formula here is held to account.
#pragma once

#include <functional>

#include "doctor/observation.h"

namespace redline::doctor {

// A share that nothing observed gives: what it usually is, and by how much it may be off (standard deviation).
struct Prior {
  double mean = 0, deviation = 0;
};
inline constexpr Prior kMatrixWork{0.6, 0.15};         // of forward and backward: the rest is bound by memory
inline constexpr Prior kLeftByBuckets{0.3, 0.15};      // of the padding, where no plan can be made
inline constexpr Prior kDecodedForNothing{0.5, 0.15};  // of a JPEG that is cut to a part
inline constexpr Prior kNarrowerBuckets{0.4, 0.15};    // of the padding, that twice the buckets take away
inline constexpr Prior kPaddedItem{0.6, 0.25};         // what it costs beside a real one, where no fit says it
// Of what a step's items cost, what comes with a sample however short: lengths rounded up, edges, rows of a table.
inline constexpr Prior kPerSample{0.05, 0.04};
inline constexpr double kInterval = 1.96;  // deviations: 95 %
// Of a worker's time, paid by a step that has no core to spare: anything between perfect sharing and none.
Prior paid_by_step(int cores);

// Standard deviation of log(1 + gain) that a prior leaves, beside `kLeastMiss`, by which a formula may be off in any
// case.
inline constexpr double kLeastMiss = 0.02;
double miss_of(const Prior& prior, const std::function<double(double)>& gain);

// Step time with `workers` worker threads, from the compute and loader work of one step. On a CPU the workers take
// their time from the training threads; on a GPU they overlap with it.
struct LoaderModel {
  double compute_seconds = 0;  // of a step, without waiting
  double loader_seconds = 0;   // worker-seconds of a step
  int threads = 1;             // intra-op threads of training
  int cores = 1;
  bool accelerator = false;
  double paid = -1;  // of a worker's time by a step without a spare core; below zero: paid_by_step
};
double predicted_step_seconds(const LoaderModel& model, int workers);

// Speed that is gained when this share of the time goes.
double removal_gain(double share);
// Lower end (95 %) of that, from the share's standard error.
double least_gain(double share, double error);

// Share of a step that does not grow with the batch: optimiser, bookkeeping, and what each piece costs however small.
double fixed_share(const Observation& seen);
// Share of a step in forward and backward.
double compute_share(const Observation& seen);

// Speed gain of another precision: the part of the step that is matrix work, at the measured rates.
double predicted_precision_gain(const Observation& seen, double rate_now, double rate_then,
                                double matrix_work = kMatrixWork.mean);
// Speed gain of removing `removed` of the padding (0..1): of what padding was seen to cost (Observation::costs), else
// as if a padded item cost `beside` of a real one.
double predicted_padding_gain(const Observation& seen, double removed, double beside = 1);

}  // namespace redline::doctor
