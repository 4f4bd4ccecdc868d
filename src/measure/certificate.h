// The certificate: the proof that a tuned config trains like the reference, or no worse, by the kinds of the design.
// Filled by tune, printed by report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/paired_test.h"
#include "measure/statistics.h"

namespace redline::measure {

inline constexpr int kCertificateVersion = 2;

enum class CertificateKind {
  Identical,    // every compared number has the same bits
  WithinNoise,  // differences no larger than rounding makes in the reference itself, step by step
  NotWorse,     // trains differently; paired runs show a held-out loss that is worse by less than the margin
  Sooner,       // asked for a loss: paired runs reach it sooner
  NotShown,     // neither: the runs were too few, too short or too unlike each other
  Worse,        // by more than the margin, or not a number
  Different,    // more than rounding, of a change that should make nothing else: rejected
};
const char* certificate_kind_name(CertificateKind kind);

// One comparison that the verdict rests on.
struct CertificateCheck {
  std::string name;              // "loss of steps 1..20", "samples of an epoch", "held-out loss at 4,000 samples"
  double difference = 0;         // relative to the reference; of held-out losses, to what the reference learned
  double tolerance = 0;          // measured, or the margin
  std::string tolerance_source;  // "reference with 1 against 2 threads", "--margin"
  bool passed = false;
};

// Pairs of runs with the same seed, initial weights and held-out samples (measure/paired_test.h).
struct PairedEvidence {
  std::string metric;    // "val_loss", or what the task says of a loss that changes its meaning
  std::string held_out;  // which samples, in words
  std::string schedule;  // the judged run, in words
  int64_t held_out_samples = 0;
  int pairs = 0, most_pairs = 0;
  double p = 1, level = 0;  // of "worse by the margin or more", and what it is held against
  double margin_share = 0, margin = 0;
  double start = 0, reference = 0;  // mean held-out losses before the first step and at the judged point
  double difference = 0;
  Interval interval;                // of the mean difference, 95 %
  double power = 0;                 // of the budget, for a change that makes no difference
  int pairs_needed = 0;             // for 90 % power
  std::vector<double> differences;  // of each pair
};

// What the change costs in samples and gains in time, for what changes the optimisation.
struct TimeToLoss {
  bool reached = true;                      // by every candidate's run
  std::string level;                        // to which loss, in words
  double noise_scale = 0;                   // of the reference's gradients, in samples, late in the judged run
  double predicted_efficiency = 1;          // of a sample against the reference's, from the noise scale
  std::optional<RatioEstimate> efficiency;  // measured in the pairs
  std::optional<double> predicted_ratio;    // speed x efficiency
  std::optional<RatioEstimate> ratio;       // measured
};

struct Certificate {
  CertificateKind kind = CertificateKind::Different;
  std::string reference_hash, candidate_hash;  // of the resolved configs
  std::vector<std::string> effects;            // kinds of the switches that moved: "numerics", "order", ...
  uint64_t seed = 0;
  int64_t steps = 0;    // of the reference
  int64_t samples = 0;  // seen by each
  std::vector<CertificateCheck> checks;
  std::optional<int64_t> first_different_step;
  std::vector<double> reference_losses, candidate_losses;  // per step, or held-out means at `curve_samples`
  std::vector<double> curve_samples;                       // empty: steps
  std::optional<PairedEvidence> paired;
  std::optional<TimeToLoss> time_to_loss;
  bool consent = false;           // the user allowed `optimisation`
  bool accept_not_shown = false;  // and what could not be shown
  std::string reason;             // one sentence for a person

  bool accepted() const;
};

}  // namespace redline::measure
