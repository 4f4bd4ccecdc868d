// Verdict and derived figures of the ledger.
#include "measure/ledger.h"

#include <cmath>

namespace redline::measure {

const char* ledger_verdict_name(LedgerVerdict verdict) {
  switch (verdict) {
    case LedgerVerdict::Faster:
      return "faster";
    case LedgerVerdict::NoEffect:
      return "no effect";
    case LedgerVerdict::Slower:
      return "slower here";
    case LedgerVerdict::Undecided:
      return "undecided";
    case LedgerVerdict::NotMeasurable:
      return "not measurable here";
    case LedgerVerdict::NotTried:
      return "not tried";
    case LedgerVerdict::Failed:
      return "failed";
  }
  return "?";
}

std::optional<double> LedgerEntry::interaction() const {
  if (!add_one_in || !leave_one_out || add_one_in->ratio <= 0) return std::nullopt;
  return leave_one_out->ratio / add_one_in->ratio;
}

std::optional<double> LedgerEntry::prediction_error_points() const {
  if (!predicted || !measured) return std::nullopt;
  return (*predicted - measured->ratio) * 100;
}

std::optional<double> Ledger::median_prediction_error_points() const {
  std::vector<double> errors;
  for (const LedgerEntry& entry : entries) {
    if (const auto error = entry.prediction_error_points()) errors.push_back(std::abs(*error));
  }
  if (errors.empty()) return std::nullopt;
  return median(errors);
}

}  // namespace redline::measure
