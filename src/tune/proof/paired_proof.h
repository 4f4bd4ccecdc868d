// A change that is more than rounding, judged by pairs of runs: pairs are made until a look decides, the budget's last
// look is over, or its time is. Words and figures of the certificate that this makes.
#pragma once

#include <functional>
#include <optional>

#include "measure/certificate.h"
#include "tune/proof/held_out_runs.h"

namespace redline::tune {

struct PairedOptions {
  measure::PairedDesign design;
  bool changes_optimisation = false;  // then samples and time to the loss are told too
  std::optional<double> target;       // a held-out loss: how soon it is reached decides
  double samples_factor = 1;          // of the candidate's step, to the reference's
  double longest = 1;                 // times the judged samples a candidate may run on to reach the loss
  bool every_pair = false;            // to the last, whatever a look says
  std::function<bool()> out_of_time;  // asked between pairs; may be empty
};

// kind, reason, checks, curves, paired and time_to_loss of a certificate; the rest is the caller's.
measure::Certificate judge_by_pairs(HeldOutRuns& runs, const Setting& setting, const PairedOptions& options);

// With the candidate's speed known: its measured and predicted time to the loss. Where a loss was asked for, that is
// what decides, whatever it costs in samples.
void set_speed(measure::Certificate& certificate, const measure::RatioEstimate& speed, bool decides);

// "0.0123 (-0.0456 to 0.0789)" and the like, for losses of any size.
std::string loss_text(double value);

}  // namespace redline::tune
