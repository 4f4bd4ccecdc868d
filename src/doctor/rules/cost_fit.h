// What an item, a padded item and a piece cost, fitted over the steps of one run: steps differ in length and padding,
// so their times tell whether padding costs anything (a model that packs its batch computes none) and how much of a
// step does not grow with the batch. Pure.
#pragma once

#include <span>

#include "measure/run_record.h"

namespace redline::doctor {

struct CostFit {
  bool known = false;        // enough steps, of different lengths, and a narrow answer
  double padding_share = 0;  // of forward and backward spent on padding, 0..1
  double padding_error = 0;  // standard error of that
  double fixed_share = 0;    // of forward and backward that comes with each piece however small, 0..1
  double fixed_error = 0;
  double piece_seconds = 0, item_seconds = 0, padding_seconds = 0;  // of one each
  bool saw_padding = true;  // false: no step had any, so what it costs is not known
};

// forward + backward = a * pieces + b * items + c * padding, by least squares.
CostFit fit_costs(std::span<const measure::StepRow> rows);

}  // namespace redline::doctor
