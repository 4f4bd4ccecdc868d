// One stage after another, each against the best so far: first how the cores are divided, then how gradients travel.
// Runs are short and start anew each time, so what their processes keep warm (caches, clocks) is shared by nobody.
#include "tune/rank_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/strings.h"
#include "core/time.h"
#include "measure/paired_test.h"
#include "tune/proof/certify.h"
#include "tune/ranks/rank_runs.h"
#include "tune/ranks/rank_ways.h"

namespace redline::tune {

namespace {

constexpr double kRunSeconds = 2.0;  // of timed steps in one run
constexpr int64_t kLeastSteps = 12, kMostSteps = 400, kProofSteps = 20;
constexpr int kLeastBlocks = 3, kMostBlocks = 6;
constexpr double kRaceShare = 0.6;  // of the budget; the rest is for proof and confirmation

measure::LedgerVerdict ledger_verdict(measure::Verdict verdict) {
  switch (verdict) {
    case measure::Verdict::Faster:
      return measure::LedgerVerdict::Faster;
    case measure::Verdict::NoEffect:
      return measure::LedgerVerdict::NoEffect;
    case measure::Verdict::Slower:
      return measure::LedgerVerdict::Slower;
    case measure::Verdict::Undecided:
      break;
  }
  return measure::LedgerVerdict::Undecided;
}

class RankTuning {
 public:
  explicit RankTuning(const RankTuneRequest& request) : request_(request), begin_(now_ns()) {}
  TuneResult run();

 private:
  struct Raced {
    Candidate way;
    size_t entry = 0;
    std::optional<measure::RatioEstimate> estimate;
  };
  double spent() const { return seconds_between(begin_, now_ns()); }
  bool time_left(double share) const { return spent() < share * request_.tune.budget_seconds; }
  void say(const std::string& text) const {
    if (request_.tune.say) request_.tune.say(text);
  }
  void read_job();
  void stage(const std::vector<Candidate>& ways);
  std::optional<measure::RatioEstimate> race(const Setting& a, const Setting& b, double share, std::string& failure);
  bool proved(const Candidate& way);
  bool proved_step_by_step(const Setting& setting);
  bool proved_by_pairs(const Setting& setting);
  void confirm();
  TuneResult result();

  const RankTuneRequest& request_;
  int64_t begin_;
  RankJob job_;
  std::string metric_;
  std::optional<RankRuns> runs_;
  int64_t steps_ = kLeastSteps;
  double run_seconds_ = 1;  // of a whole run, its start included
  Setting best_;
  measure::TuneCard card_;
  std::vector<double> reference_seconds_, best_seconds_;
  RankRun reference_;
  std::vector<std::vector<double>> noise_;
};

void RankTuning::read_job() {
  const auto job = train::Job::read(request_.tune.registry, request_.tune.source, request_.tune.machine);
  const train::TrainerConfig& trainer = job->trainer();
  job_.ranks = static_cast<int>(std::max<int64_t>(1, parse_int(trainer.devices.value()).value_or(1)));
  job_.threads = static_cast<int>(trainer.intra_op_threads.value());
  job_.bucket_cap_mb = trainer.strategy.bucket_cap_mb;
  job_.compression = trainer.strategy.compression;
  metric_ = job->monitor_metric();
  runs_.emplace(request_, job_.ranks, metric_);
  const int64_t begun = now_ns();
  reference_ = runs_->run({}, kLeastSteps);
  if (!reference_.failure.empty() || !(reference_.seconds_per_sample > 0))
    throw ConfigError(fmt::format("The job as it is does not run ({}); redline train says more.", reference_.failure));
  const double step = reference_.seconds_per_sample * reference_.samples_per_step;
  steps_ = std::clamp(static_cast<int64_t>(kRunSeconds / step) + RankRuns::kWarmUp, kLeastSteps, kMostSteps);
  run_seconds_ = seconds_between(begun, now_ns()) + static_cast<double>(steps_ - kLeastSteps) * step;
  job_.gradient_mb = reference_.gradient_bytes / (1 << 20);
  const auto task = job->build_task();
  card_.break_even.samples_of_run = samples_of_run(
      *job, job->build_loader(*task, train::Job::Part::Train, {})->steps_per_epoch(), reference_.samples_per_step);
  say(fmt::format("{} ranks x {} threads, {:.1f} samples/s; runs of {} steps take about {}.", job_.ranks, job_.threads,
                  1 / reference_.seconds_per_sample, steps_, format_seconds(run_seconds_)));
}

// A B B A, and so on until it is decided, or there is no time left.
std::optional<measure::RatioEstimate> RankTuning::race(const Setting& a, const Setting& b, double share,
                                                       std::string& failure) {
  std::vector<double> first, second;
  std::optional<measure::RatioEstimate> estimate;
  for (int block = 0; block < kMostBlocks; ++block) {
    if (!first.empty() && !time_left(share)) break;
    double seconds[2] = {0, 0};
    for (const int turn : {0, 1, 1, 0}) {
      const bool mine = (turn == 1) == (block % 2 == 0);
      const RankRun run = runs_->run(mine ? b : a, steps_);
      if (!run.failure.empty() || !(run.seconds_per_sample > 0)) {
        failure = run.failure.empty() ? "its steps were not timed" : run.failure;
        return std::nullopt;
      }
      seconds[mine ? 1 : 0] += run.seconds_per_sample / 2;
    }
    first.push_back(seconds[0]);
    second.push_back(seconds[1]);
    if (block + 1 < kLeastBlocks) continue;
    estimate = measure::compare_blocks(first, second);
    if (measure::judge(*estimate) != measure::Verdict::Undecided) break;
  }
  if (!estimate && !first.empty()) estimate = measure::compare_blocks(first, second);
  reference_seconds_ = first;
  best_seconds_ = second;
  return estimate;
}

bool RankTuning::proved_step_by_step(const Setting& setting) {
  if (noise_.empty()) {
    reference_ = runs_->run({}, kProofSteps);
    for (int threads = 1; noise_.size() < 2; ++threads)
      if (threads != job_.threads)
        noise_.push_back(runs_->run({{"trainer.intra_op_threads", std::to_string(threads)}}, kProofSteps).losses);
  }
  const CertificateEvidence evidence{reference_.losses, runs_->run(setting, kProofSteps).losses, noise_};
  const CertificateJudgement judgement = judge_step_by_step(evidence);
  measure::Certificate certificate;
  certificate.kind = judgement.kind;
  certificate.reason = judgement.sentence;
  certificate.effects = {"nothing"};
  certificate.steps = kProofSteps;
  certificate.checks.push_back({fmt::format("loss of steps 1..{}", kProofSteps), judgement.largest_difference,
                                judgement.tolerance, "the reference with other numbers of threads",
                                judgement.first_outside < 0});
  if (judgement.first_outside >= 0) certificate.first_different_step = judgement.first_outside;
  certificate.reference_losses = evidence.reference;
  certificate.candidate_losses = evidence.winner;
  const bool accepted = certificate.accepted();
  if (accepted || !card_.certificate) card_.certificate = std::move(certificate);
  return accepted;
}

// Rounding on the wire is other numbers: it may learn neither less nor more.
bool RankTuning::proved_by_pairs(const Setting& setting) {
  measure::PairedDesign design;
  design.margin = request_.tune.margin;
  design.must_be_alike = true;
  const double left = request_.tune.budget_seconds - spent();
  design.most_pairs = measure::most_pairs_within(static_cast<int>(left / (3 * run_seconds_)));
  measure::Certificate certificate;
  certificate.effects = {"numerics"};
  certificate.accept_not_shown = request_.tune.accept_not_shown;
  certificate.kind = measure::CertificateKind::NotShown;
  std::vector<measure::PairedLosses> pairs;
  measure::PairedJudgement judgement;
  while (static_cast<int>(pairs.size()) < design.most_pairs && judgement.verdict == measure::PairedVerdict::Undecided) {
    const auto seed = static_cast<int64_t>(1000 + pairs.size());
    const RankRun before = runs_->judged({}, 0, seed), reference = runs_->judged(best_, steps_, seed),
                  candidate = runs_->judged(setting, steps_, seed);
    if (!before.held_out || !reference.held_out || !candidate.held_out) break;
    pairs.push_back({*before.held_out, *reference.held_out, *candidate.held_out});
    judgement = measure::judge_pairs(pairs, design);
  }
  if (pairs.empty()) {
    certificate.reason = fmt::format(
        "There was no time, or no validation data, for pairs of runs to show that {} is alike.", setting_text(setting));
  } else {
    using measure::PairedVerdict;
    certificate.kind = judgement.verdict == PairedVerdict::NotWorse ? measure::CertificateKind::NotWorse
                       : judgement.verdict == PairedVerdict::Worse  ? measure::CertificateKind::Worse
                       : judgement.verdict == PairedVerdict::Better ? measure::CertificateKind::Different
                                                                    : measure::CertificateKind::NotShown;
    certificate.reason =
        fmt::format("{} pairs of runs: {} ({} {:+.3g}, {:+.3g} to {:+.3g}; margin {:.3g}, p {:.3g}).", pairs.size(),
                    measure::paired_verdict_name(judgement.verdict), metric_, judgement.difference,
                    judgement.interval.low, judgement.interval.high, judgement.margin, judgement.p);
  }
  const bool accepted = certificate.accepted();
  if (accepted || !card_.certificate || certificate.kind == measure::CertificateKind::Worse)
    card_.certificate = std::move(certificate);
  return accepted;
}

bool RankTuning::proved(const Candidate& way) {
  const Setting whole = combine(best_, way.values);
  return way.effect == config::Effect::Nothing ? proved_step_by_step(whole) : proved_by_pairs(whole);
}

void RankTuning::stage(const std::vector<Candidate>& ways) {
  std::vector<Raced> raced;
  for (const Candidate& way : ways) {
    measure::LedgerEntry entry;
    entry.field = way.field;
    entry.from = way.from;
    entry.to = way.to;
    entry.effect = config::effect_name(way.effect);
    if (!way.not_tried.empty()) {
      entry.verdict = way.not_measurable ? measure::LedgerVerdict::NotMeasurable : measure::LedgerVerdict::NotTried;
      entry.reason = way.not_tried;
      if (!way.not_measurable) entry.consent = request_.tune.allow.missing(way.consent);
    } else if (!time_left(kRaceShare)) {
      entry.verdict = measure::LedgerVerdict::NotTried;
      entry.reason = "the budget ended before";
    } else {
      std::string failure;
      const auto estimate = race(best_, combine(best_, way.values), kRaceShare, failure);
      entry.measured = entry.add_one_in = estimate;
      entry.verdict = estimate ? ledger_verdict(measure::judge(*estimate)) : measure::LedgerVerdict::Failed;
      entry.reason = failure;
      if (estimate)
        say(fmt::format("{} -> {}: {:.2f} times the speed ({:.2f} to {:.2f})", way.from, way.name, estimate->ratio,
                        estimate->interval.low, estimate->interval.high));
    }
    raced.push_back({way, card_.ledger.entries.size(), entry.measured});
    card_.ledger.entries.push_back(std::move(entry));
  }
  std::sort(raced.begin(), raced.end(), [](const Raced& a, const Raced& b) {
    return (a.estimate ? a.estimate->ratio : 0) > (b.estimate ? b.estimate->ratio : 0);
  });
  for (const Raced& one : raced) {
    measure::LedgerEntry& entry = card_.ledger.entries[one.entry];
    if (entry.verdict != measure::LedgerVerdict::Faster) continue;
    if (proved(one.way)) {
      entry.in_best = true;
      best_ = combine(best_, one.way.values);
      return;
    }
    entry.reason = "faster, and not kept: " + card_.certificate->reason;
  }
}

// Fresh blocks: those that chose the winner flatter it.
void RankTuning::confirm() {
  if (best_.empty()) return;
  std::string failure;
  const auto estimate = race({}, best_, 1.0, failure);
  if (!estimate) return;
  card_.ledger.best = estimate;
  card_.promised_ratio = estimate->interval;
}

TuneResult RankTuning::result() {
  card_.ledger.objective = "samples/s of a step";
  card_.ledger.tuning_seconds = card_.break_even.tuning_seconds = spent();
  card_.ledger.baseline_samples_per_second =
      1 / (reference_seconds_.empty() ? reference_.seconds_per_sample : measure::median(reference_seconds_));
  card_.ledger.best_samples_per_second = best_.empty() || best_seconds_.empty()
                                             ? card_.ledger.baseline_samples_per_second
                                             : 1 / measure::median(best_seconds_);
  card_.break_even.baseline_samples_per_second = card_.ledger.baseline_samples_per_second;
  card_.break_even.best_samples_per_second = card_.ledger.best_samples_per_second;
  card_.break_even.samples_per_step = reference_.samples_per_step;
  card_.budget_seconds = request_.tune.budget_seconds;
  card_.values.assign(best_.begin(), best_.end());
  if (best_.empty()) card_.certificate.reset();
  TuneResult result;
  result.card = card_;
  result.best = best_;
  return result;
}

TuneResult RankTuning::run() {
  read_job();
  stage(ways_to_divide(job_, request_.ranks, request_.tune.machine.allowed_cpus));
  const std::vector<Candidate> sending = ways_to_send(job_, best_, request_.tune.allow);
  for (const config::Effect effect : {config::Effect::Nothing, config::Effect::Numerics}) {  // buckets, then rounding
    std::vector<Candidate> some;
    for (const Candidate& way : sending)
      if (way.effect == effect) some.push_back(way);
    stage(some);
  }
  confirm();
  return result();
}

}  // namespace

TuneResult tune_ranks(const RankTuneRequest& request) { return RankTuning(request).run(); }

}  // namespace redline::tune
