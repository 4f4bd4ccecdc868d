// The runs a certificate rests on: the winner and the reference over the same samples from the same start, the
// reference under another rounding, and under other seeds. Judged by certify.h.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "measure/certificate.h"
#include "tune/proof/certify.h"
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
  int64_t steps = 10;                // step by step, for switches that change nothing but rounding
  int64_t curve_steps = 40;          // of the reference, for the others
  int seeds = 3;                     // besides the reference's own
  bool consent = false;              // to optimisation
  ReferenceCurves* known = nullptr;  // may be null
  // Runs the winner; none: run_losses. Negative controls put a sabotaged training here.
  std::function<LossCurve(const Setting& setting, int64_t steps)> run_winner{};
};

// Fewer steps of a winner show little of what its updates do: its first loss comes before any.
inline constexpr int64_t kLeastCurveSteps = 8;
// A proof by the curve of a winner whose step holds `factor` times the reference's samples: steps of the reference, and
// how many such runs it takes in all, the winner's counted as one.
int64_t least_curve_steps(double factor);
int curve_runs(const EvidenceOptions& options);

// Whether a switch is held to the reference step by step. One that makes other numbers (a precision, another decoder)
// is not: rounding noise of the reference says nothing about it.
bool proved_step_by_step(const Candidate& candidate);

// Mean losses per bin of `bin_samples` samples: curves of different batches on one scale.
std::vector<double> per_samples(const LossCurve& curve, double bin_samples, size_t bins);

struct Proof {
  measure::Certificate certificate;
  bool failed_step_by_step = false;  // rejected for a switch that should have changed nothing but rounding
};
// The members of a winner: those that change nothing but rounding step by step, by themselves, then all of them by the
// curve when there are others.
Proof certify(const JobSource& jobs, const std::vector<Candidate>& members, const EvidenceOptions& options);

}  // namespace redline::tune
