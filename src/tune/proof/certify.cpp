#include "tune/proof/certify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "measure/statistics.h"

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

CertificateJudgement judge_step_by_step(const CertificateEvidence& evidence) {
  CertificateJudgement judgement;
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

// Student's quantiles at 97.5 % by degrees of freedom.
constexpr double kStudent[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};

measure::Interval prediction_interval(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  const double middle = measure::mean(values);
  if (values.size() < 2) return {middle, middle};
  double squares = 0;
  for (double value : values) squares += (value - middle) * (value - middle);
  const double t = kStudent[std::min(values.size() - 2, std::size(kStudent) - 1)];
  const double half = t * std::sqrt(squares / (n - 1) * (1 + 1 / n));
  return {middle - half, middle + half};
}

// Mean loss over the last half, where curves have settled, against the spread of seeds there.
CertificateJudgement judge_curve(const CertificateEvidence& evidence) {
  CertificateJudgement judgement;
  const auto tail = [](const std::vector<double>& losses) {
    double sum = 0;
    const size_t begin = losses.size() / 2;
    for (size_t i = begin; i < losses.size(); ++i) sum += losses[i];
    return sum / static_cast<double>(losses.size() - begin);
  };
  std::vector<double> seeds = {tail(evidence.reference)};
  for (const auto& run : evidence.reference_seeds) seeds.push_back(tail(run));
  // Where another seed of the reference would fall, 19 times out of 20: few seeds make that wide, as they should.
  const measure::Interval expected = prediction_interval(seeds);
  judgement.seed_spread = expected;
  const double mine = tail(evidence.winner);
  judgement.tolerance = (expected.high - expected.low) / 2 / std::max(1e-12, std::abs(seeds[0]));
  judgement.largest_difference = relative_difference(mine, seeds[0]);
  const bool better = mine < expected.low, inside = expected.contains(mine);
  const bool optimisation = evidence.effect == config::Effect::Optimisation || evidence.effect == config::Effect::Model;
  const std::string numbers = fmt::format("loss {:.4f} where seeds of the reference give {:.4f} to {:.4f} ({} of them)",
                                          mine, expected.low, expected.high, seeds.size());
  if (!std::isfinite(mine) || (!optimisation && !evidence.same_samples_per_epoch)) {
    judgement.sentence = std::isfinite(mine) ? "An epoch does not hold the same samples." : "The loss is not finite.";
  } else if (optimisation && (inside || better)) {
    judgement.kind = CertificateKind::TrainsDifferently;
    judgement.sentence = "Trains differently, and no worse at equal samples seen: " + numbers + ".";
  } else if (!optimisation && inside) {
    judgement.kind = CertificateKind::WithinNoise;
    judgement.sentence = "Same samples per epoch, and a curve within the spread of seeds: " + numbers + ".";
  } else {
    judgement.sentence = "Outside what seeds explain: " + numbers + ".";
  }
  return judgement;
}

}  // namespace

CertificateJudgement judge_certificate(const CertificateEvidence& evidence) {
  CertificateJudgement judgement;
  if (evidence.reference.empty() || evidence.winner.size() != evidence.reference.size()) {
    judgement.sentence = fmt::format("The winner made {} steps where the reference made {}.", evidence.winner.size(),
                                     evidence.reference.size());
    return judgement;
  }
  const bool exact = evidence.effect == config::Effect::Nothing || evidence.effect == config::Effect::Numerics;
  return exact ? judge_step_by_step(evidence) : judge_curve(evidence);
}

}  // namespace redline::tune
