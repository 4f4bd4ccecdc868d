// What one observed stretch of a job says beside its phases: what a micro-batch, an item and a padded item cost, and
// what threads are worth. Pure.
#pragma once

#include <optional>
#include <span>

#include "doctor/observation.h"
#include "tune/objective.h"
#include "tune/setting.h"

namespace redline::tune {

// What one observed stretch of the reference showed.
struct Observed {
  doctor::Observation seen;
  // Forward and backward, from how step times follow their pieces, items and padding: what comes with a micro-batch
  // however small, with an item, and with an item of padding (nothing for a model that packs its batch).
  double micro_batch_seconds = 0, item_seconds = 0, padding_seconds = 0;
  double items_per_sample = 0;
  // Part of a step that more threads speed up (Amdahl); what is left is bound by memory or serial.
  double parallel_share = 0.8;
  // The job in larger pieces, raced against the job as it is: what more rows at once cost cannot be told from steps of
  // one size, which differ only in the length of their samples.
  struct Raced {
    Setting setting;
    double ratio = 1;
  };
  std::optional<Raced> larger;
  // These in length buckets, raced against these: what the padding that goes had cost.
  std::optional<Raced> bucketed;
  // Larger pieces in another precision, raced against larger pieces: what it does to the cost of an item.
  std::optional<Raced> precise;
  // Rounding the weights for one forward pass and their gradients back: what that precision adds to a piece, below zero
  // where the job's own does it and that one does not.
  double cast_seconds = 0;
  CadenceCosts costs;
  CadenceRates rates;
};
// From rows of one or of several sizes. Where these do not settle what padding costs, it costs as much as an item or
// nothing, whichever leaves smaller misses. Steps that something else held up are left out; rows with too little spread
// give all to the items.
void fit_micro_batches(std::span<const measure::StepRow> rows, bool computes_padding, Observed& observed);
// Forward and backward of one sample in pieces of some size.
struct SampleCost {
  double pieces = 1, items = 0, padding = 0, seconds = 0;
};
// The costs of a piece, an item and a padded item that give all of these; without `bucketed`, padding keeps what it was
// fitted to cost beside an item. Does nothing where the two sizes do not tell a piece from its items.
void anchor_micro_batches(const SampleCost& reference, const SampleCost& larger,
                          const std::optional<SampleCost>& bucketed, Observed& observed);
// From the whole step's seconds with the job's and with the other number of threads, of which `apart` do not depend on
// them.
double parallel_share(double job_seconds, double other_seconds, double apart, int job_threads, int other_threads);

}  // namespace redline::tune
