#include "tune/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/philox.h"
#include "train/run/trial.h"

namespace redline::tune {

using config::Effect;

namespace {

// Not another order of the same additions but other numbers: rounding noise of the reference says nothing about them.
bool changes_numbers(const Candidate& candidate) {
  return candidate.values.count("trainer.precision") != 0 || candidate.values.count("model.train_ds.decode") != 0;
}

double samples_per_step(const LossCurve& curve) {
  double sum = 0;
  for (double samples : curve.samples) sum += samples;
  return curve.samples.empty() ? 1 : sum / static_cast<double>(curve.samples.size());
}

// Every weight moved by its last bit, up or down: another rounding of the same training.
void move_last_bits(train::Trial& trial) {
  const train::CheckpointState state = trial.state();
  const torch::NoGradGuard no_grad;
  KeyedStream draw(7, 0, 0, 0);
  for (const auto& [name, tensor] : state.model) {
    if (tensor.scalar_type() != torch::kFloat32) continue;
    torch::Tensor flat = torch::Tensor(tensor).view(-1);
    auto* values = flat.mutable_data_ptr<float>();
    for (int64_t i = 0; i < flat.numel(); ++i) values[i] *= 1.0f + (draw.uniform(0, 1) < 0.5 ? -1.2e-7f : 1.2e-7f);
  }
  trial.load(state);
}

measure::CertificateKind kind_of(CertificateVerdict verdict) {
  switch (verdict) {
    case CertificateVerdict::Identical:
      return measure::CertificateKind::Identical;
    case CertificateVerdict::WithinNoise:
    case CertificateVerdict::SameCurve:
      return measure::CertificateKind::WithinNoise;
    case CertificateVerdict::TrainsDifferently:
      return measure::CertificateKind::TrainsDifferently;
    case CertificateVerdict::Different:
      break;
  }
  return measure::CertificateKind::Different;
}

}  // namespace

Effect strongest_effect(const std::vector<Candidate>& members) {
  Effect strongest = Effect::Nothing;
  for (const Candidate& member : members)
    strongest = std::max(strongest, changes_numbers(member) ? std::max(member.effect, Effect::Order) : member.effect);
  return strongest;
}

LossCurve run_losses(const JobSource& jobs, const Setting& setting, const std::vector<std::string>& typed,
                     int64_t steps, bool perturb) {
  config::RequestSource source = jobs.with(setting);
  source.overrides.insert(source.overrides.end(), typed.begin(), typed.end());
  train::TrialOptions options;
  options.log = options.validate = options.monitor = false;
  train::Trial trial(jobs.registry, source, jobs.machine, options);
  if (perturb) move_last_bits(trial);
  LossCurve curve;
  for (const measure::StepRow& row : trial.run(steps).rows) {
    curve.losses.push_back(row.loss);
    curve.samples.push_back(row.samples);
  }
  return curve;
}

std::vector<double> per_samples(const LossCurve& curve, double bin_samples, size_t bins) {
  std::vector<double> sums(bins, 0), weights(bins, 0);
  double seen = 0;
  for (size_t i = 0; i < curve.losses.size(); ++i) {
    const auto bin = static_cast<size_t>(seen / bin_samples + 1e-9);
    seen += curve.samples[i];
    if (bin >= bins) break;
    sums[bin] += curve.losses[i] * curve.samples[i];
    weights[bin] += curve.samples[i];
  }
  std::vector<double> means;
  for (size_t i = 0; i < bins && weights[i] > 0; ++i) means.push_back(sums[i] / weights[i]);
  return means;
}

namespace {

LossCurve reference_losses(const JobSource& jobs, const EvidenceOptions& options, const std::vector<std::string>& typed,
                           bool perturb = false) {
  const std::string key =
      fmt::format("{} {} {}", options.steps, perturb ? "perturbed" : "", typed.empty() ? std::string() : typed[0]);
  if (options.known != nullptr)
    if (const auto found = options.known->find(key); found != options.known->end()) return found->second;
  LossCurve curve = run_losses(jobs, {}, typed, options.steps, perturb);
  if (options.known != nullptr) (*options.known)[key] = curve;
  return curve;
}

}  // namespace

measure::Certificate certify_curve(const JobSource& jobs, const std::function<LossCurve(int64_t)>& run_winner,
                                   Effect effect, bool same_samples, const EvidenceOptions& options) {
  CertificateEvidence evidence;
  evidence.effect = effect;
  evidence.same_samples_per_epoch = same_samples;
  measure::Certificate certificate;
  certificate.consent = options.consent;
  const bool exact = effect == Effect::Nothing || effect == Effect::Numerics;
  const LossCurve reference = reference_losses(jobs, options, {});
  std::string source;
  if (exact) {
    const LossCurve winner = run_winner(options.steps);
    evidence.reference = reference.losses;
    evidence.winner = winner.losses;
    const auto job = train::Job::read(jobs.registry, jobs.with({}), jobs.machine, {true, false});
    const int64_t threads = job->trainer().intra_op_threads.value();
    const int64_t other = threads > 1 ? threads - 1 : 2;
    evidence.reference_noise.push_back(
        reference_losses(jobs, options, {fmt::format("trainer.intra_op_threads={}", other)}).losses);
    evidence.reference_noise.push_back(reference_losses(jobs, options, {}, /*perturb=*/true).losses);
    source = fmt::format("the reference with {} instead of {} threads, and with every weight's last bit moved", other,
                         threads);
    // Losses of equal bits over other samples would be luck; how many samples a step had must agree too.
    if (winner.samples != reference.samples) evidence.winner.clear();
  } else {
    // Enough steps of the winner for the same samples; the larger step is the bin.
    const LossCurve first = run_winner(1);
    const double mine = samples_per_step(first), theirs = samples_per_step(reference);
    const double total = theirs * static_cast<double>(options.steps), bin = std::max(mine, theirs);
    const auto bins = static_cast<size_t>(std::max(1.0, std::floor(total / bin + 1e-9)));
    const LossCurve winner = run_winner(static_cast<int64_t>(std::ceil(bin * static_cast<double>(bins) / mine)));
    evidence.reference = per_samples(reference, bin, bins);
    evidence.winner = per_samples(winner, bin, bins);
    for (int seed = 1; seed <= options.seeds; ++seed)
      evidence.reference_seeds.push_back(
          per_samples(reference_losses(jobs, options, {fmt::format("seed={}", 1000 + seed)}), bin, bins));
    source = fmt::format("{} other seeds of the reference", options.seeds);
  }
  const CertificateJudgement judgement = judge_certificate(evidence);
  certificate.kind = kind_of(judgement.verdict);
  certificate.reason = judgement.sentence;
  if (certificate.kind == measure::CertificateKind::TrainsDifferently && !options.consent) {
    certificate.kind = measure::CertificateKind::Different;
    certificate.reason += " Nobody allowed that (--allow optimisation).";
  }
  certificate.effects = {config::effect_name(effect)};
  certificate.steps = options.steps;
  for (double samples : reference.samples) certificate.samples += static_cast<int64_t>(samples);
  certificate.reference_losses = evidence.reference;
  certificate.candidate_losses = evidence.winner;
  if (judgement.first_outside > 0) certificate.first_different_step = judgement.first_outside;
  certificate.checks.push_back({exact ? fmt::format("loss of steps 1..{}", options.steps)
                                      : fmt::format("loss at {} samples", certificate.samples),
                                judgement.largest_difference, judgement.tolerance, source, certificate.accepted()});
  if (effect == Effect::Order)
    certificate.checks.push_back({"samples of an epoch", same_samples ? 0.0 : 1.0, 0, "the plans", same_samples});
  return certificate;
}

measure::Certificate certify(const JobSource& jobs, const Setting& winner, Effect effect,
                             const EvidenceOptions& options) {
  bool same = true;
  if (effect == Effect::Order) {
    const auto job = train::Job::read(jobs.registry, jobs.with({}), jobs.machine, {true, false});
    same = same_samples(jobs, *job->build_task(), {}, winner);
  }
  measure::Certificate certificate = certify_curve(
      jobs, [&](int64_t steps) { return run_losses(jobs, winner, {}, steps); }, effect, same, options);
  const auto hash = [&](const Setting& setting) {
    return train::Job::read(jobs.registry, jobs.with(setting), jobs.machine, {true, false})->config_hash();
  };
  certificate.reference_hash = hash({});
  certificate.candidate_hash = hash(winner);
  return certificate;
}

}  // namespace redline::tune
