#include "tune/proof/certify.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/philox.h"

namespace redline::tune {
namespace {

using measure::CertificateKind;

std::vector<double> make_curve(double rate, double jitter, uint64_t seed, int steps = 40, double level = 1.0) {
  std::vector<double> losses;
  KeyedStream draw(seed, 0, 0, 5);
  for (int i = 0; i < steps; ++i)
    losses.push_back(level * (1 + 4 * std::exp(-rate * i)) * (1 + jitter * draw.normal()));
  return losses;
}

CertificateEvidence exact_evidence() {
  CertificateEvidence evidence;
  evidence.reference = make_curve(0.05, 0, 0);
  evidence.reference_noise = {make_curve(0.05, 1e-6, 1)};
  evidence.winner = evidence.reference;
  return evidence;
}

TEST(Certificate, EqualBitsAreIdentical) {
  EXPECT_EQ(judge_step_by_step(exact_evidence()).kind, CertificateKind::Identical);
}

TEST(Certificate, RoundingIsAllowedAsFarAsItWasMeasured) {
  CertificateEvidence evidence = exact_evidence();
  evidence.winner = make_curve(0.05, 1e-6, 2);
  EXPECT_EQ(judge_step_by_step(evidence).kind, CertificateKind::WithinNoise);
  evidence.reference_noise.clear();  // nothing measured, nothing allowed beyond one rounding
  EXPECT_EQ(judge_step_by_step(evidence).kind, CertificateKind::Different);
}

TEST(Certificate, OtherTrainingsAreRejected) {
  CertificateEvidence evidence = exact_evidence();
  for (double rate : {0.05 * 1.05, 0.0501}) {  // as a learning rate 5 % higher would do
    evidence.winner = make_curve(rate, 0, 0);
    const auto judgement = judge_step_by_step(evidence);
    EXPECT_EQ(judgement.kind, CertificateKind::Different);
    EXPECT_GT(judgement.first_outside, 0);
  }
  evidence.winner = make_curve(0.05, 0, 0, 39);  // a step is missing
  EXPECT_EQ(judge_step_by_step(evidence).kind, CertificateKind::Different);
  evidence.winner = evidence.reference;
  evidence.winner[7] = NAN;
  EXPECT_EQ(judge_step_by_step(evidence).kind, CertificateKind::Different);
}

}  // namespace
}  // namespace redline::tune
