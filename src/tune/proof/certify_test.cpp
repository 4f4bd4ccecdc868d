#include "tune/proof/certify.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/philox.h"

namespace redline::tune {
namespace {

using measure::CertificateKind;

using config::Effect;

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
  EXPECT_EQ(judge_certificate(exact_evidence()).kind, CertificateKind::Identical);
}

TEST(Certificate, RoundingIsAllowedAsFarAsItWasMeasured) {
  CertificateEvidence evidence = exact_evidence();
  evidence.winner = make_curve(0.05, 1e-6, 2);
  EXPECT_EQ(judge_certificate(evidence).kind, CertificateKind::WithinNoise);
  evidence.reference_noise.clear();  // nothing measured, nothing allowed beyond one rounding
  EXPECT_EQ(judge_certificate(evidence).kind, CertificateKind::Different);
}

TEST(Certificate, OtherTrainingsAreRejected) {
  CertificateEvidence evidence = exact_evidence();
  for (double rate : {0.05 * 1.05, 0.0501}) {  // as a learning rate 5 % higher would do
    evidence.winner = make_curve(rate, 0, 0);
    const auto judgement = judge_certificate(evidence);
    EXPECT_EQ(judgement.kind, CertificateKind::Different);
    EXPECT_GT(judgement.first_outside, 0);
  }
  evidence.winner = make_curve(0.05, 0, 0, 39);  // a step is missing
  EXPECT_EQ(judge_certificate(evidence).kind, CertificateKind::Different);
  evidence.winner = evidence.reference;
  evidence.winner[7] = NAN;
  EXPECT_EQ(judge_certificate(evidence).kind, CertificateKind::Different);
}

TEST(Certificate, OrderNeedsTheSameSamplesAndTheSpreadOfSeeds) {
  CertificateEvidence evidence;
  evidence.effect = Effect::Order;
  evidence.reference = make_curve(0.1, 0.02, 0);
  for (uint64_t seed = 1; seed < 5; ++seed) evidence.reference_seeds.push_back(make_curve(0.1, 0.02, seed));
  evidence.winner = make_curve(0.1, 0.02, 9);
  EXPECT_EQ(judge_certificate(evidence).kind, CertificateKind::WithinNoise);
  evidence.same_samples_per_epoch = false;
  EXPECT_EQ(judge_certificate(evidence).kind, CertificateKind::Different);
  evidence.same_samples_per_epoch = true;
  evidence.winner = make_curve(0.1, 0.02, 9, 40, 1.2);
  EXPECT_EQ(judge_certificate(evidence).kind, CertificateKind::Different);
}

TEST(Certificate, OptimisationNeedsConsentAndMustNotBeWorse) {
  CertificateEvidence evidence;
  evidence.effect = Effect::Optimisation;
  evidence.reference = make_curve(0.1, 0.02, 0);
  for (uint64_t seed = 1; seed < 5; ++seed) evidence.reference_seeds.push_back(make_curve(0.1, 0.02, seed));
  evidence.winner = make_curve(0.3, 0.02, 9);  // learns faster
  const auto better = judge_certificate(evidence);
  EXPECT_EQ(better.kind, CertificateKind::TrainsDifferently);
  evidence.winner = make_curve(0.03, 0.02, 9);
  EXPECT_EQ(judge_certificate(evidence).kind, CertificateKind::Different);
}

}  // namespace
}  // namespace redline::tune
