#include "tune/proof/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/philox.h"
#include "train/trial.h"

namespace redline::tune {

using config::Effect;

namespace {

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

}  // namespace

bool proved_step_by_step(const Candidate& candidate) {
  const bool other_numbers =
      candidate.values.count("trainer.precision") != 0 || candidate.values.count("model.train_ds.decode") != 0;
  return candidate.effect <= Effect::Numerics && !other_numbers;
}

int64_t least_curve_steps(double factor) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(kLeastCurveSteps) * std::max(1.0, factor) - 1e-9));
}

int curve_runs(const EvidenceOptions& options) { return options.seeds + 2; }

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
  // A step may reach over several bins: batches bounded by length hold what comes.
  for (size_t i = 0; i < curve.losses.size(); ++i) {
    const double begin = seen / bin_samples, end = (seen += curve.samples[i]) / bin_samples;
    for (auto bin = static_cast<size_t>(begin + 1e-9); bin < bins && static_cast<double>(bin) < end - 1e-9; ++bin) {
      const double part = std::min(end, static_cast<double>(bin + 1)) - std::max(begin, static_cast<double>(bin));
      sums[bin] += curve.losses[i] * part;
      weights[bin] += part;
    }
  }
  std::vector<double> means;
  for (size_t i = 0; i < bins && weights[i] > 0; ++i) means.push_back(sums[i] / weights[i]);
  return means;
}

namespace {

LossCurve reference_losses(const JobSource& jobs, const EvidenceOptions& options, int64_t steps,
                           const std::string& typed = {}, bool perturb = false) {
  const std::string key = typed + (perturb ? " perturbed" : "");
  if (options.known != nullptr)
    if (const auto found = options.known->find(key);
        found != options.known->end() && static_cast<int64_t>(found->second.losses.size()) >= steps) {
      LossCurve first = found->second;
      first.losses.resize(static_cast<size_t>(steps));
      first.samples.resize(static_cast<size_t>(steps));
      return first;
    }
  const auto words = typed.empty() ? std::vector<std::string>() : std::vector<std::string>{typed};
  LossCurve curve = run_losses(jobs, {}, words, steps, perturb);
  if (options.known != nullptr) (*options.known)[key] = curve;
  return curve;
}

LossCurve winner_losses(const JobSource& jobs, const Setting& winner, const EvidenceOptions& options, int64_t steps) {
  return options.run_winner ? options.run_winner(winner, steps) : run_losses(jobs, winner, {}, steps);
}

struct Evidence {
  CertificateEvidence runs;
  int64_t steps = 0, samples = 0;
  std::string name, source;  // of the check and of its tolerance
};

Evidence step_by_step(const JobSource& jobs, const Setting& winner, const EvidenceOptions& options) {
  Evidence e;
  e.runs.effect = Effect::Numerics;
  const LossCurve reference = reference_losses(jobs, options, options.steps);
  const LossCurve mine = winner_losses(jobs, winner, options, options.steps);
  e.runs.reference = reference.losses;
  // Losses of equal bits over other samples would be luck; how many samples a step had must agree too.
  if (mine.samples == reference.samples) e.runs.winner = mine.losses;
  const auto job = train::Job::read(jobs.registry, jobs.with({}), jobs.machine);
  const int64_t threads = job->trainer().intra_op_threads.value();
  const int64_t other = threads > 1 ? threads - 1 : 2;
  e.runs.reference_noise = {
      reference_losses(jobs, options, options.steps, fmt::format("{}={}", kThreadsPath, other)).losses,
      reference_losses(jobs, options, options.steps, {}, /*perturb=*/true).losses};
  e.steps = options.steps;
  for (const double samples : reference.samples) e.samples += static_cast<int64_t>(samples);
  e.name = fmt::format("loss of steps 1..{}", options.steps);
  e.source = fmt::format("the reference with {} instead of {} threads, and with every weight's last bit moved", other,
                         threads);
  return e;
}

Evidence by_the_curve(const JobSource& jobs, const Setting& winner, Effect effect, const EvidenceOptions& options) {
  Evidence e;
  e.runs.effect = effect;
  const LossCurve reference = reference_losses(jobs, options, options.curve_steps);
  // Enough steps of the winner for the same samples; the larger step is the bin.
  const double mine = samples_per_step(winner_losses(jobs, winner, options, 1)), theirs = samples_per_step(reference);
  const double bin = std::max(mine, theirs);
  const auto bins =
      static_cast<size_t>(std::max(1.0, std::floor(theirs * static_cast<double>(options.curve_steps) / bin + 1e-9)));
  const double total = bin * static_cast<double>(bins);
  auto steps = static_cast<int64_t>(std::ceil(total / mine - 1e-9));
  LossCurve curve = winner_losses(jobs, winner, options, steps);
  // Where batches are bounded by length, the first step may have held more than most.
  if (const double seen = samples_per_step(curve) * static_cast<double>(curve.samples.size());
      !curve.samples.empty() && seen < total - 0.5) {
    steps = static_cast<int64_t>(std::ceil(1.1 * total / seen * static_cast<double>(steps)));
    curve = winner_losses(jobs, winner, options, steps);
  }
  e.runs.reference = per_samples(reference, bin, bins);
  e.runs.winner = per_samples(curve, bin, bins);
  for (int seed = 1; seed <= options.seeds; ++seed)
    e.runs.reference_seeds.push_back(per_samples(
        reference_losses(jobs, options, options.curve_steps, fmt::format("seed={}", 1000 + seed)), bin, bins));
  e.steps = options.curve_steps;
  e.samples = static_cast<int64_t>(total);
  e.name = fmt::format("loss at {} samples", e.samples);
  e.source = fmt::format("{} other seeds of the reference", options.seeds);
  return e;
}

measure::Certificate judged(const Evidence& evidence, Effect effect, bool consent) {
  const CertificateJudgement judgement = judge_certificate(evidence.runs);
  measure::Certificate certificate;
  certificate.kind = judgement.kind;
  certificate.reason = judgement.sentence;
  if (certificate.kind == measure::CertificateKind::TrainsDifferently && !consent) {
    certificate.kind = measure::CertificateKind::Different;
    certificate.reason += " Nobody allowed that (--allow optimisation).";
  }
  certificate.consent = consent;
  certificate.effects = {config::effect_name(effect)};
  certificate.steps = evidence.steps;
  certificate.samples = evidence.samples;
  certificate.reference_losses = evidence.runs.reference;
  certificate.candidate_losses = evidence.runs.winner;
  certificate.seed_spread = judgement.seed_spread;
  if (judgement.first_outside > 0) certificate.first_different_step = judgement.first_outside;
  certificate.checks = {
      {evidence.name, judgement.largest_difference, judgement.tolerance, evidence.source, certificate.accepted()}};
  return certificate;
}

}  // namespace

Proof certify(const JobSource& jobs, const std::vector<Candidate>& members, const EvidenceOptions& options) {
  Setting exact, winner;
  Effect effect = Effect::Nothing;
  bool all_exact = true, any_exact = false;
  for (const Candidate& member : members) {
    winner = combine(winner, member.values);
    const bool step_by_step = proved_step_by_step(member);
    if (step_by_step) exact = combine(exact, member.values);
    any_exact = any_exact || step_by_step;
    all_exact = all_exact && step_by_step;
    effect = std::max(effect, step_by_step ? member.effect : std::max(member.effect, Effect::Order));
  }
  Proof proof;
  if (all_exact) {
    proof.certificate = judged(step_by_step(jobs, winner, options), effect, options.consent);
    proof.failed_step_by_step = !proof.certificate.accepted();
  } else {
    std::vector<measure::CertificateCheck> before;
    if (any_exact) {
      const measure::Certificate first = judged(step_by_step(jobs, exact, options), Effect::Numerics, options.consent);
      before = first.checks;
      if (!first.accepted()) {
        proof = {first, true};
        proof.certificate.reason =
            fmt::format("'{}' alone should change nothing but rounding. {}", setting_text(exact), first.reason);
        return proof;
      }
    }
    Evidence evidence = by_the_curve(jobs, winner, effect, options);
    const bool order = effect == Effect::Order;
    if (order) {
      const auto job = train::Job::read(jobs.registry, jobs.with({}), jobs.machine);
      evidence.runs.same_samples_per_epoch = same_samples(jobs, *job->build_task(), {}, winner);
    }
    proof.certificate = judged(evidence, effect, options.consent);
    const bool same = evidence.runs.same_samples_per_epoch;
    if (order) proof.certificate.checks.push_back({"samples of an epoch", same ? 0.0 : 1.0, 0, "the plans", same});
    proof.certificate.checks.insert(proof.certificate.checks.end(), before.begin(), before.end());
  }
  const auto hash = [&](const Setting& setting) {
    return train::Job::read(jobs.registry, jobs.with(setting), jobs.machine)->config_hash();
  };
  proof.certificate.reference_hash = hash({});
  proof.certificate.candidate_hash = hash(winner);
  return proof;
}

}  // namespace redline::tune
