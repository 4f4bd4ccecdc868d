// The runs a certificate rests on. Step by step: the winner and the reference over the same samples from the same
// start, and the reference under another rounding (certify.h). By pairs: both to a judged point, from several seeds
// (paired_proof.h).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "measure/certificate.h"
#include "tune/proof/certify.h"
#include "tune/proof/paired_proof.h"
#include "tune/search/candidates.h"
#include "tune/trials/job_source.h"

namespace redline::tune {

// Losses of a job's first steps from the seed's own weights, and how many samples each step saw.
struct LossCurve {
  std::vector<double> losses, samples;
};
LossCurve run_losses(const JobSource& jobs, const Setting& setting, const std::vector<std::string>& typed,
                     int64_t steps, bool perturb = false);
// Runs of the reference, kept so that the next winner is judged by the same ones; a longer one answers for a shorter.
using ReferenceCurves = std::map<std::string, LossCurve>;

struct EvidenceOptions {
  int64_t steps = 10;  // step by step, for switches that change nothing but rounding
  // For the others. Null: there is no time for pairs, and what needs them is not shown.
  HeldOutRuns* runs = nullptr;
  PairedOptions paired{};
  bool consent = false;              // to optimisation
  bool accept_not_shown = false;     // what could not be shown is kept all the same
  ReferenceCurves* known = nullptr;  // may be null
  // Runs the winner step by step; none: run_losses. Negative controls put a sabotaged training here.
  std::function<LossCurve(const Setting& setting, int64_t steps)> run_winner{};
};

// Whether a switch is held to the reference step by step. One that makes other numbers (a precision, another decoder)
// is not: rounding noise of the reference says nothing about it.
bool proved_step_by_step(const Candidate& candidate);

struct Proof {
  measure::Certificate certificate;
  bool failed_step_by_step = false;  // rejected for a switch that should have changed nothing but rounding
};
// The members of a winner: those that change nothing but rounding step by step, by themselves, then all of them by
// pairs of runs when there are others.
Proof certify(const JobSource& jobs, const std::vector<Candidate>& members, const EvidenceOptions& options);

}  // namespace redline::tune
