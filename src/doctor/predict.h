// What each switch would gain, predicted from one observed run, the ceilings and the machine's rates, before anything
// is tried. The tuner's ledger keeps these numbers beside what was measured, so every formula here is held to account.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/fields.h"
#include "core/machine_facts.h"
#include "doctor/ceilings.h"
#include "doctor/observation.h"

namespace redline::doctor {

struct Suggestion {
  std::string option;  // dotted path, e.g. "model.train_ds.num_workers"
  std::string value;
  double predicted_gain = 0;  // in speed: 0.25 = +25 %; negative = slower
  config::Effect effect = config::Effect::Nothing;
  std::string reason;
};

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

// All switches the doctor has an opinion about, largest gain first.
std::vector<Suggestion> predict_gains(const Settings& settings, const Observation& seen,
                                      std::span<const Ceiling> ceilings, const MachineFacts& machine);

// Share of a step that does not grow with the batch: optimiser, bookkeeping, and what each piece costs however small.
double fixed_share(const Observation& seen);

// Speed gain of another precision: the part of the step that is matrix work, at the measured rates.
double predicted_precision_gain(const Observation& seen, double rate_now, double rate_then);
// Speed gain of removing `removed` of the padding (0..1): of what padding was seen to cost (Observation::costs), else
// as if a padded item cost as much as a real one.
double predicted_padding_gain(const Observation& seen, double removed);

}  // namespace redline::doctor
