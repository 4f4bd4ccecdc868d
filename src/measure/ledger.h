// The ledger: what each switch was predicted to bring and what it brought on this job and machine. Filled by tune,
// printed by report. Gains are ratios of throughput: 1.25 is 25 % faster than without the switch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "measure/statistics.h"

namespace redline::measure {

inline constexpr int kLedgerVersion = 2;

enum class LedgerVerdict {
  Faster,         // shown by the blocks alone, counting every row and every look
  NoEffect,       // the interval lies within 2 % of 1
  Slower,         // "slower here"
  Undecided,      // anything else: `reason` says what is still possible
  NotMeasurable,  // this machine can not show it (no GPU, no second disk); never "no effect"
  NotTried,       // `reason` says why: no consent, no unit for it
  Failed,         // the trial ended with an error, e.g. out of memory; `reason` says which
};
const char* ledger_verdict_name(LedgerVerdict verdict);

struct LedgerEntry {
  std::string field;     // "trainer.precision"
  std::string from, to;  // values as the dump prints them
  std::string effect;    // what it changes besides speed: "nothing", "numerics", "order", "optimisation", "model"
  std::string claim;     // what a guide promises, e.g. "+50-100 %"; empty when none does
  std::optional<double> predicted;             // ratio
  std::optional<Interval> predicted_interval;  // 95 %
  std::optional<RatioEstimate> add_one_in;     // baseline with this switch, against the baseline: prediction and blocks
  std::optional<RatioEstimate> leave_one_out;  // the best with this switch, against the best without it: the same
  std::optional<RatioEstimate> measured;       // as add_one_in, from the blocks alone
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
  // Predicted less measured (by the blocks alone), in percentage points of gain.
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

}  // namespace redline::measure
