// Does a winner that should change nothing but rounding train like the reference? Judged on loss sequences over the
// same samples; nothing here runs anything. The tolerance is measured, not guessed: how far the reference is from
// itself under another rounding (threads, perturbed last bits).
#pragma once

#include <string>
#include <vector>

#include "measure/certificate.h"

namespace redline::tune {

// Losses per step, aligned.
struct CertificateEvidence {
  std::vector<double> reference, winner;
  std::vector<std::vector<double>> reference_noise;  // the reference under other rounding, same samples
};

struct CertificateJudgement {
  measure::CertificateKind kind = measure::CertificateKind::Different;
  double largest_difference = 0;  // relative
  double tolerance = 0;           // relative, as measured
  int first_outside = -1;         // step, or -1
  std::string sentence;
};

CertificateJudgement judge_step_by_step(const CertificateEvidence& evidence);

}  // namespace redline::tune
