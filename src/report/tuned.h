// What tuning found, for the page and the terminal: ledger, certificate, break-even.
#pragma once

#include <string>
#include <vector>

#include "measure/tune_card.h"

namespace redline::report {

// One line per switch: what it is, the guide's claim, predicted, measured with interval, verdict.
struct LedgerLine {
  std::string name, claim, predicted, measured, verdict;
  std::string worth, time_to_loss;  // of what changes the optimisation: a sample's worth and the time to the loss
  bool in_best = false;
};
std::vector<LedgerLine> ledger_lines(const measure::Ledger& ledger);

std::string tuned_html(const measure::TuneCard& card);
std::string tuned_text(const measure::TuneCard& card, int width);

}  // namespace redline::report
