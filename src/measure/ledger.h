// The ledger: what each switch was predicted to bring and what it brought on this job and machine. Filled by tune,
// printed by report. Gains are ratios of throughput: 1.25 is 25 % faster than without the switch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "measure/statistics.h"

namespace redline::measure {

inline constexpr int kLedgerVersion = 1;

enum class LedgerVerdict {
  Faster,
  NoEffect,       // the interval contains 1
  Slower,         // "slower here"
  TooNoisy,       // the interval contains 1 and is too wide to call it no effect
  NotMeasurable,  // this machine can not show it (no GPU, no second disk); never "no effect"
  InCompany,      // raced only together with others: leave_one_out or `reason` has the figures
  NotTried,       // `reason` says why: no consent, out of budget
  Failed,         // the trial ended with an error, e.g. out of memory; `reason` says which
};
const char* ledger_verdict_name(LedgerVerdict verdict);

struct LedgerEntry {
  std::string field;     // "trainer.precision"
  std::string from, to;  // values as the dump prints them
  std::string effect;    // what it changes besides speed: "nothing", "numerics", "order", "optimisation", "model"
  std::string claim;     // what a guide promises, e.g. "+50-100 %"; empty when none does
  std::optional<double> predicted;             // ratio
  std::optional<RatioEstimate> add_one_in;     // baseline with this switch, against the baseline
  std::optional<RatioEstimate> leave_one_out;  // the best, against the best without this switch
  LedgerVerdict verdict = LedgerVerdict::NotMeasurable;
  std::string reason;  // why not measurable or failed
  bool in_best = false;
  std::string consent;  // the word of --allow it waits for; empty: none

  // Of what changes the optimisation: what a sample is worth against the reference's, and speed times that, which is
  // the time to the reference's loss. Measured in the certificate's pairs.
  std::optional<double> predicted_efficiency, predicted_time_to_loss;
  std::optional<RatioEstimate> efficiency, time_to_loss;

  // What the switch is worth in company over what it is worth alone; above 1 it helps more together with the others.
  std::optional<double> interaction() const;
  // Predicted less measured (add_one_in), in percentage points of gain.
  std::optional<double> prediction_error_points() const;
};

struct Ledger {
  std::string objective = "samples/s of the whole run";
  std::vector<LedgerEntry> entries;
  std::optional<RatioEstimate> best;  // the best combination against the baseline
  double baseline_samples_per_second = 0, best_samples_per_second = 0;
  double tuning_seconds = 0;
  // The most that what was not tried could still gain (ratio); 1 = nothing is left, none = nobody knows.
  std::optional<double> bound_left;
  std::optional<double> noise_scale;          // of the reference's gradients, in samples
  std::optional<RatioEstimate> time_to_loss;  // of the best, where it changes the optimisation

  std::optional<double> median_prediction_error_points() const;  // of absolute errors
};

// From an interval alone; NotMeasurable and Failed are known to the caller only.
LedgerVerdict ledger_verdict(const RatioEstimate& estimate);

}  // namespace redline::measure
