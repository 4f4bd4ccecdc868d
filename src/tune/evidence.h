// The runs a certificate rests on: the winner and the reference over the same samples from the same start, the
// reference under another rounding, and under other seeds. Judged by certify.h.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "measure/certificate.h"
#include "tune/certify.h"
#include "tune/job_view.h"

namespace redline::tune {

// What the winner's switches change, the strongest of them; a precision is held to the curve like an order, since its
// rounding is not the reference's.
config::Effect strongest_effect(const std::vector<Candidate>& members);

// Losses of a job's first steps from the seed's own weights, and how many samples each step saw.
struct LossCurve {
  std::vector<double> losses, samples;
};
LossCurve run_losses(const JobSource& jobs, const Setting& setting, const std::vector<std::string>& typed,
                     int64_t steps, bool perturb = false);
// Runs of the reference, kept so that the next winner is judged by the same ones.
using ReferenceCurves = std::map<std::string, LossCurve>;

struct EvidenceOptions {
  int64_t steps = 10;                // of the reference
  int seeds = 3;                     // besides the reference's own, for order and optimisation
  bool consent = false;              // to optimisation
  ReferenceCurves* known = nullptr;  // may be null
};

// Mean losses per bin of `bin_samples` samples: curves of different batches on one scale.
std::vector<double> per_samples(const LossCurve& curve, double bin_samples, size_t bins);

measure::Certificate certify(const JobSource& jobs, const Setting& winner, config::Effect effect,
                             const EvidenceOptions& options);
// The same with a winner that someone else runs (negative controls).
measure::Certificate certify_curve(const JobSource& jobs, const std::function<LossCurve(int64_t steps)>& run_winner,
                                   config::Effect effect, bool same_samples, const EvidenceOptions& options);

}  // namespace redline::tune
