// Does the winner train like the reference? Judged on loss sequences over the same samples; nothing here runs anything.
// The tolerance is measured, not guessed: how far the reference is from itself under another rounding (threads,
// perturbed last bits), and how far seeds lie apart.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/fields.h"
#include "measure/certificate.h"

namespace redline::tune {

// Losses per step, aligned; for `order` and `optimisation`, per equal number of samples seen.
struct CertificateEvidence {
  config::Effect effect = config::Effect::Nothing;  // strongest effect among the winner's switches
  std::vector<double> reference, winner;
  std::vector<std::vector<double>> reference_noise;  // the reference under other rounding, same samples
  std::vector<std::vector<double>> reference_seeds;  // the reference under other seeds (order and optimisation)
  bool same_samples_per_epoch = true;
};

struct CertificateJudgement {
  measure::CertificateKind kind = measure::CertificateKind::Different;  // before anybody was asked for consent
  double largest_difference = 0;                                        // relative
  double tolerance = 0;                                                 // relative, as measured
  int first_outside = -1;                                               // step, or -1
  std::optional<measure::Interval> seed_spread;  // where another seed's loss would fall, of a curve
  std::string sentence;
};

CertificateJudgement judge_certificate(const CertificateEvidence& evidence);

}  // namespace redline::tune
