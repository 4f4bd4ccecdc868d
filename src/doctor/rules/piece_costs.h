// What a piece, an item and a padded item cost, from how step times follow them, and what threads are worth. Pure.
#pragma once

#include <optional>
#include <span>

#include "measure/run_record.h"

namespace redline::doctor {

// Forward and backward: what comes with a piece however small, with an item, and with an item of padding (nothing for a
// model that packs its batch).
struct PieceCosts {
  double piece_seconds = 0, item_seconds = 0, padding_seconds = 0;
  double items_per_sample = 0;
};

// From rows of one or of several sizes. Where these do not settle what padding costs, it costs as much as an item or
// nothing, whichever leaves smaller misses. Steps that something else held up are left out; rows with too little spread
// give all to the items.
PieceCosts fit_pieces(std::span<const measure::StepRow> rows, bool computes_padding);

// Forward and backward of one sample in pieces of some size.
struct SampleCost {
  double pieces = 1, items = 0, padding = 0, seconds = 0;
};
// The costs that give all of these; without `bucketed`, padding keeps what it was fitted to cost beside an item. Does
// nothing where the two sizes do not tell a piece from its items.
void anchor_pieces(const SampleCost& reference, const SampleCost& larger, const std::optional<SampleCost>& bucketed,
                   PieceCosts& costs);

// Part of a step that more threads speed up (Amdahl), from the whole step's seconds with the job's and with the other
// number of threads, of which `apart` do not depend on them.
double parallel_share(double job_seconds, double other_seconds, double apart, int job_threads, int other_threads);

}  // namespace redline::doctor
