#include "tune/proof/certify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace redline::tune {

using measure::CertificateKind;

namespace {

constexpr double kFloor = 2e-7;       // one float32 rounding of a loss
constexpr double kNoiseFactor = 4.0;  // the winner may stray four times as far as the reference did from itself

double relative_difference(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return INFINITY;
  return std::abs(a - b) / std::max({std::abs(a), std::abs(b), 1e-12});
}

// Rounding differences grow along a run, so the envelope at a step is the largest seen up to it, over all noise runs.
std::vector<double> noise_envelope(const CertificateEvidence& evidence) {
  std::vector<double> envelope(evidence.reference.size(), kFloor);
  for (const auto& run : evidence.reference_noise)
    for (size_t i = 0; i < std::min(run.size(), envelope.size()); ++i)
      envelope[i] = std::max(envelope[i], relative_difference(run[i], evidence.reference[i]));
  for (size_t i = 1; i < envelope.size(); ++i) envelope[i] = std::max(envelope[i], envelope[i - 1]);
  return envelope;
}

}  // namespace

CertificateJudgement judge_step_by_step(const CertificateEvidence& evidence) {
  CertificateJudgement judgement;
  if (evidence.reference.empty() || evidence.winner.size() != evidence.reference.size()) {
    judgement.sentence = fmt::format("The winner made {} steps where the reference made {}.", evidence.winner.size(),
                                     evidence.reference.size());
    return judgement;
  }
  const std::vector<double> envelope = noise_envelope(evidence);
  bool identical = true;
  for (size_t i = 0; i < evidence.reference.size(); ++i) {
    const double difference = relative_difference(evidence.winner[i], evidence.reference[i]);
    identical = identical && evidence.winner[i] == evidence.reference[i];
    judgement.largest_difference = std::max(judgement.largest_difference, difference);
    judgement.tolerance = std::max(judgement.tolerance, kNoiseFactor * envelope[i]);
    if (difference > kNoiseFactor * envelope[i] && judgement.first_outside < 0)
      judgement.first_outside = static_cast<int>(i) + 1;
  }
  judgement.kind = identical                     ? CertificateKind::Identical
                   : judgement.first_outside < 0 ? CertificateKind::WithinNoise
                                                 : CertificateKind::Different;
  const auto steps = evidence.reference.size();
  if (identical)
    judgement.sentence = fmt::format("All {} losses are equal to the last bit.", steps);
  else if (judgement.first_outside < 0)
    judgement.sentence = fmt::format("{} losses differ by at most {:.1e}, within the measured rounding noise ({:.1e}).",
                                     steps, judgement.largest_difference, judgement.tolerance);
  else
    judgement.sentence = fmt::format(
        "From step {} on the losses differ by more than rounding explains (up to {:.1e}, allowed {:.1e}): this is "
        "another training.",
        judgement.first_outside, judgement.largest_difference, judgement.tolerance);
  return judgement;
}

}  // namespace redline::tune
