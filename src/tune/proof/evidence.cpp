#include "tune/proof/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/philox.h"
#include "train/trial.h"

namespace redline::tune {

using config::Effect;

namespace {

// Every weight moved by its last bit, up or down: another rounding of the same training.
void move_last_bits(train::Trial& trial) {
  const train::CheckpointState state = trial.state();
  const torch::NoGradGuard no_grad;
  KeyedStream draw(7, 0, 0, 0);
  for (const auto& [name, tensor] : state.model) {
    if (tensor.scalar_type() != torch::kFloat32) continue;
    // Value by value as they lie in memory: kernels of pictures have their channels last, which no flat view shows.
    REDLINE_CHECK(tensor.is_non_overlapping_and_dense(), "weights have no holes");
    auto* values = torch::Tensor(tensor).mutable_data_ptr<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) values[i] *= 1.0f + (draw.uniform(0, 1) < 0.5 ? -1.2e-7f : 1.2e-7f);
  }
  trial.load(state);
}

}  // namespace

bool proved_step_by_step(const Candidate& candidate) {
  const bool other_numbers =
      candidate.values.count("trainer.precision") != 0 || candidate.values.count("model.train_ds.decode") != 0;
  return candidate.effect <= Effect::Numerics && !other_numbers;
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

measure::Certificate step_by_step(const JobSource& jobs, const Setting& winner, const EvidenceOptions& options) {
  CertificateEvidence runs;
  const LossCurve reference = reference_losses(jobs, options, options.steps);
  const LossCurve mine = winner_losses(jobs, winner, options, options.steps);
  runs.reference = reference.losses;
  // Losses of equal bits over other samples would be luck; how many samples a step had must agree too.
  if (mine.samples == reference.samples) runs.winner = mine.losses;
  const auto job = train::Job::read(jobs.registry, jobs.with({}), jobs.machine);
  const int64_t threads = job->trainer().intra_op_threads.value();
  const int64_t other = threads > 1 ? threads - 1 : 2;
  runs.reference_noise = {
      reference_losses(jobs, options, options.steps, fmt::format("{}={}", kThreadsPath, other)).losses,
      reference_losses(jobs, options, options.steps, {}, /*perturb=*/true).losses};
  const CertificateJudgement judgement = judge_step_by_step(runs);
  measure::Certificate certificate;
  certificate.kind = judgement.kind;
  certificate.reason = judgement.sentence;
  certificate.steps = options.steps;
  for (const double samples : reference.samples) certificate.samples += static_cast<int64_t>(samples);
  certificate.reference_losses = runs.reference;
  certificate.candidate_losses = runs.winner;
  if (judgement.first_outside > 0) certificate.first_different_step = judgement.first_outside;
  certificate.checks = {
      {fmt::format("loss of steps 1..{}", options.steps), judgement.largest_difference, judgement.tolerance,
       fmt::format("the reference with {} instead of {} threads, and with every weight's last bit moved", other,
                   threads),
       certificate.accepted()}};
  return certificate;
}

// Whether an epoch of both holds the same samples, as a check; a change that takes some away is rejected by it alone.
measure::CertificateCheck same_epoch(const JobSource& jobs, const Setting& winner) {
  const auto job = train::Job::read(jobs.registry, jobs.with({}), jobs.machine);
  const bool same = same_samples(jobs, *job->build_task(), {}, winner);
  return {"samples of an epoch", same ? 0.0 : 1.0, 0, "the plans", same};
}

measure::Certificate by_pairs(const JobSource& jobs, const Setting& winner, Effect effect,
                              const EvidenceOptions& options) {
  measure::Certificate certificate;
  const measure::CertificateCheck epoch = same_epoch(jobs, winner);
  if (!epoch.passed) {
    certificate.reason = "An epoch does not hold the same samples.";
    certificate.checks = {epoch};
    return certificate;
  }
  if (options.runs == nullptr) {
    certificate.kind = measure::CertificateKind::NotShown;
    certificate.reason = "Not shown: the budget has no time for pairs of runs.";
    certificate.checks = {epoch};
    return certificate;
  }
  const bool optimisation = effect >= Effect::Optimisation;
  if (optimisation && !options.consent) {
    certificate.reason = "It changes the optimisation, and nobody allowed that (--allow optimisation).";
    certificate.checks = {epoch};
    return certificate;
  }
  PairedOptions paired = options.paired;
  paired.changes_optimisation = optimisation;
  paired.design.must_be_alike = !optimisation;
  certificate = judge_by_pairs(*options.runs, winner, paired);
  certificate.checks.push_back(epoch);
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
    effect = std::max(effect, member.effect);
  }
  Proof proof;
  if (all_exact) {
    proof.certificate = step_by_step(jobs, winner, options);
    proof.failed_step_by_step = !proof.certificate.accepted();
  } else {
    std::vector<measure::CertificateCheck> before;
    if (any_exact) {
      const measure::Certificate first = step_by_step(jobs, exact, options);
      before = first.checks;
      if (!first.accepted()) {
        proof = {first, true};
        proof.certificate.reason =
            fmt::format("'{}' alone should change nothing but rounding. {}", setting_text(exact), first.reason);
        return proof;
      }
    }
    proof.certificate = by_pairs(jobs, winner, effect, options);
    proof.certificate.checks.insert(proof.certificate.checks.end(), before.begin(), before.end());
  }
  proof.certificate.consent = options.consent;
  proof.certificate.accept_not_shown = options.accept_not_shown;
  proof.certificate.effects = {config::effect_name(effect)};
  const auto hash = [&](const Setting& setting) {
    return train::Job::read(jobs.registry, jobs.with(setting), jobs.machine)->config_hash();
  };
  proof.certificate.reference_hash = hash({});
  proof.certificate.candidate_hash = hash(winner);
  return proof;
}

}  // namespace redline::tune
