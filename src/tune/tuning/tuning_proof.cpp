// What the search leaves of the budget: the winner is proved, its memory is looked at, and its gain confirmed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/strings.h"
#include "tune/tuning/tuning.h"

namespace redline::tune {

namespace {

constexpr double kConfirmShare = 0.15, kLargestBatchShare = 0.1;  // of the budget
constexpr int kLeastConfirmingBlocks = 5, kMostConfirmingBlocks = 12;
constexpr int kMostCertificates = 4, kMostParts = 3;
constexpr int kFewestPairs = 3, kClearPairs = 5, kUsualPairs = 8;
constexpr double kPlannedFactor = 4;  // of a step's samples: judged runs are made long enough for it
constexpr int64_t kMostJudgedSteps = 400;
constexpr double kLooks = 1.3;        // what looking at the held-out samples adds to a judged run
constexpr double kLongestToLoss = 2;  // times the judged samples, where a loss is asked for

}  // namespace

std::string budget_text(double seconds) { return fmt::format("{:.0f}s", std::ceil(seconds / 30) * 30); }

double Tuning::pair_run_seconds(int64_t steps) const {
  return kLooks * static_cast<double>(steps) * seen_.bare_step_seconds() + build_seconds_;
}

// Beyond the factor that runs are planned for, they are long enough only where the usual number of pairs allows.
double Tuning::least_proof_seconds(const Setting& setting) const {
  const double factor = samples_factor(setting);
  const int pairs = factor > kPlannedFactor ? kUsualPairs : kFewestPairs;
  return 2 * pairs * pair_run_seconds(least_judged_steps(factor));
}

// What most proofs need, which are clear after the second look; the reference's first run may be there already.
double Tuning::usual_proof_seconds() const {
  return runs_ ? (2 * kClearPairs - 1) * pair_run_seconds(runs_->run().steps) : 0;
}

// One length of run for all candidates, so that they share the reference's runs: as long as the usual number of pairs
// allows. The first reference run comes before the search where batches may move: its gradients say what they are
// worth.
void Tuning::plan_pairs() {
  const double seconds = kMostProofShare * request_.budget_seconds;
  const double samples = samples_of_run(*job_, view_.steps_per_epoch, seen_.samples_per_step);
  if (least_proof_seconds({}) > seconds) return;
  const double step = kLooks * std::max(1e-5, seen_.bare_step_seconds());
  const auto affordable = [&](int pairs) {
    return static_cast<int64_t>((seconds / (2 * pairs) - build_seconds_) / step);
  };
  const int64_t larger = request_.allow.optimisation ? least_judged_steps(kPlannedFactor) : kLeastJudgedSteps;
  const int64_t steps =
      std::clamp(affordable(kUsualPairs), std::min(larger, std::max(kLeastJudgedSteps, affordable(kFewestPairs))),
                 kMostJudgedSteps);
  const QuietLog quiet;
  JudgedRun run = plan_judged_run(*job_, *task_, {seen_.samples_per_step, samples, steps});
  most_pairs_ = measure::most_pairs_within(static_cast<int>(seconds / (2 * pair_run_seconds(run.steps))));
  if (most_pairs_ == 0) return;
  if (run.hold_out > 0) notes_.push_back(fmt::format("Certificates are judged on {}.", run.held_out_words));
  runs_ = std::make_unique<HeldOutRuns>(jobs_, std::move(run));
  if (!request_.allow.optimisation || view_.bounded_by_length) return;
  say(fmt::format("[{:.0f} s] A first run of the reference, to {} samples, for the noise of its gradients ...", spent(),
                  format_count(runs_->run().samples)));
  runs_->reference(0);
}

// Why a setting that changes more than rounding could not be proved with this budget; empty when it can.
std::string Tuning::pairs_refusal(const Setting& setting) const {
  const double factor = samples_factor(setting);
  const bool long_enough = runs_ && (runs_->run().share() >= 1 || least_judged_steps(factor) <= runs_->run().steps);
  if (long_enough) return {};
  const double seconds = least_proof_seconds(setting);
  return fmt::format("its proof alone takes about {}, too long for a budget of {}: give --budget {}",
                     format_seconds(seconds), format_seconds(request_.budget_seconds),
                     budget_text(seconds / kMostProofShare));
}

double Tuning::efficiency(const Setting& setting) const {
  const double factor = samples_factor(setting);
  if (factor == 1.0 || !runs_) return 1;
  return measure::noise_efficiency(runs_->noise(), seen_.samples_per_step, factor * seen_.samples_per_step);
}

// Seconds per sample of the reference's worth: what the search compares, so that fewer updates are no gain in
// themselves.
std::optional<double> Tuning::goodput(std::optional<double> seconds, const Setting& setting) const {
  if (seconds) *seconds /= efficiency(setting);
  return seconds;
}

double Tuning::confirm_seconds() const {
  return std::max(kConfirmShare * request_.budget_seconds, 4 * kLeastConfirmingBlocks * seen_.bare_step_seconds());
}

double Tuning::largest_batch_seconds() const {
  return request_.memory_bytes > 0 ? kLargestBatchShare * request_.budget_seconds : 0;
}

// With a memory limit, users also ask what would fit.
void Tuning::find_largest_batch() {
  if (largest_batch_seconds() <= 0 || view_.bounded_by_length) return;
  try {
    const TrialPool::LargestBatch found = pool_->largest_batch(largest_batch_seconds());
    if (found.peak_bytes > 0) largest_ = {found.rows, found.peak_bytes, memory_limit_, found.time_ended};
  } catch (const std::exception& error) {
    notes_.push_back(fmt::format("The largest batch that fits is not known: {}", error.what()));
  }
}

// As many steps as the budget pays for.
EvidenceOptions Tuning::proof_options(const std::vector<Candidate>& members) const {
  EvidenceOptions options;
  options.consent = request_.allow.optimisation;
  options.accept_not_shown = request_.accept_not_shown;
  const double seconds = kProofShare * request_.budget_seconds / 1.5;
  const double step = std::max(1e-4, seen_.bare_step_seconds());
  Setting winner;
  for (const Candidate& member : members) winner = combine(winner, member.values);
  const bool exact = std::all_of(members.begin(), members.end(), proved_step_by_step);
  options.steps =
      std::clamp(static_cast<int64_t>((exact ? 1.0 : 0.2) * seconds / kExactProofRuns / step), int64_t{4}, int64_t{20});
  options.runs = runs_.get();
  options.paired.design.margin = request_.margin;
  options.paired.design.most_pairs = std::max(kFewestPairs, most_pairs_);
  options.paired.design.error_rate *= shares_.share();
  options.paired.target = request_.target;
  options.paired.samples_factor = samples_factor(winner);
  options.paired.longest = request_.target ? kLongestToLoss : 1;
  options.paired.out_of_time = [this] { return spent() > request_.budget_seconds - confirm_seconds() / 2; };
  return options;
}

std::vector<Contender> Tuning::contenders() const {
  std::vector<Contender> all;
  for (const Entry& entry : search_->entries()) {
    Contender one{entry.candidate, std::nullopt};
    if (entry.state == EntryState::Better && entry.alone) one.better = entry.alone->ratio;
    all.push_back(std::move(one));
  }
  return all;
}

bool Tuning::has_time_for_pairs() const {
  return runs_ &&
         spent() + kFewestPairs * pair_run_seconds(runs_->run().steps) < request_.budget_seconds - confirm_seconds();
}

// The best, part by part: each is proved on top of those before it, against the same runs of the reference. What could
// not be proved or does not pay makes room for the next best; what was proved before it stays.
void Tuning::prove_and_confirm() {
  struct Kept {
    std::vector<size_t> members;
    std::optional<measure::Certificate> certificate;
    int64_t peak_bytes = 0;
  } kept;
  const std::vector<std::vector<size_t>> parts = parts_by_effect(contenders(), members_);
  size_t part = 0;
  choose(parts.empty() ? std::vector<size_t>() : parts[0]);
  for (int round = 0; round < kMostCertificates && !best_.empty(); ++round) {
    bool shown = prove();
    stop_if_asked();
    if (shown && certificate_->time_to_loss) {  // its time to the loss needs its speed, and it is the last part
      if (confirm() && !takes_longer()) return;
      shown = false;
    }
    const bool last = round + 2 >= kMostCertificates || spent() > request_.budget_seconds - confirm_seconds();
    std::vector<size_t> next;
    if (shown)
      kept = {members_, certificate_, peak_bytes_};
    else if (next = next_best(contenders(), rejected_, last); within(next, kept.members))
      next.clear();
    if (next.empty() && part + 1 < parts.size() && has_time_for_pairs()) {
      next = kept.members;
      ++part;
      next.insert(next.end(), parts[part].begin(), parts[part].end());
    }
    choose(std::move(next));
  }
  for (; part + 1 < parts.size() && runs_; ++part) not_tried_for_time(parts[part + 1]);
  choose(kept.members);
  if (best_.empty()) return;
  certificate_ = kept.certificate;
  peak_bytes_ = kept.peak_bytes;
  if (!confirm()) choose({});
}

// What the budget had no time to prove, by name, with a budget that has.
void Tuning::not_tried_for_time(const std::vector<size_t>& part) {
  Setting setting;
  double gain = 1;
  for (const size_t i : part) {
    const Entry& entry = search_->entries()[i];
    setting = combine(setting, entry.candidate.values);
    gain *= entry.in_best.now.ratio;
  }
  notes_.push_back(fmt::format(
      "'{}' may bring {:+.0f} % more; there was no time to prove it: --budget {} has.", setting_text(setting),
      100 * (gain - 1),
      budget_text(std::max(1.5 * request_.budget_seconds,
                           (1 + kMostParts) * kUsualPairs * pair_run_seconds(runs_->run().steps) / kMostProofShare))));
  say(notes_.back());
}

// " --budget 600s has time for them."
std::string Tuning::time_for_pairs(const measure::PairedEvidence& paired) const {
  if (!runs_ || paired.pairs_needed <= paired.most_pairs || paired.pairs_needed > 100) return {};
  return fmt::format(" --budget {} has time for them.",
                     budget_text(2 * paired.pairs_needed * pair_run_seconds(runs_->run().steps) / kMostProofShare));
}

bool Tuning::prove() {
  pool_->drop_all();
  EvidenceOptions options = proof_options(chosen());
  options.known = &curves_;
  say(fmt::format("[{:.0f} s] Does '{}' train like the reference? ...", spent(), setting_text(best_)));
  Proof proof;
  Rejection rejection{members_, Rejection::Reason::DoesNotRun};
  bool kept = false;
  try {
    const QuietLog quiet;
    const TrialPool::Journal journal(card_path_.string() + ".running", best_);
    if (const auto known = pool_->failure_of(best_)) throw Error(ExitCode::Failure, *known);
    proof = certify(jobs_, chosen(), options);
    const auto& time = proof.certificate.time_to_loss;
    // Asked for a loss, what counts is how soon it is reached; that is known with the speed.
    kept = proof.certificate.accepted() || (request_.target && time && time->efficiency && time->reached);
    if (kept)
      peak_bytes_ = pool_->probe(best_);
    else
      rejection.reason = proof.failed_step_by_step ? Rejection::Reason::StepByStep : Rejection::Reason::Pairs;
  } catch (const PreemptedError&) {
    throw;
  } catch (const std::exception& error) {
    kept = false;
    proof.certificate = {};
    proof.certificate.reason = fmt::format("It does not run: {}", split(error.what(), '\n').front());
  }
  stop_if_asked();
  say(fmt::format("Certificate: {}. {}", measure::certificate_kind_name(proof.certificate.kind),
                  proof.certificate.reason));
  certificate_ = proof.certificate;
  if (certificate_->paired) kept ? shares_.shown() : shares_.not_shown();
  if (kept) return true;
  notes_.push_back(fmt::format("'{}' is not kept: {}{}", setting_text(best_), certificate_->reason,
                               certificate_->paired ? time_for_pairs(*certificate_->paired) : ""));
  rejected_.push_back(std::move(rejection));
  return false;
}

// A change of the optimisation is kept only where its time to the loss is shown to be shorter, measured as speed times
// what a sample was worth in the pairs.
bool Tuning::takes_longer() {
  if (!certificate_ || !certificate_->time_to_loss || !confirmed_) return false;
  set_speed(*certificate_, *confirmed_, request_.target.has_value());
  const auto& ratio = certificate_->time_to_loss->ratio;
  if (ratio && ratio->interval.low > 1 && certificate_->accepted()) return false;
  const std::string found =
      ratio ? fmt::format("its time to {} is {}", certificate_->time_to_loss->level, gain_text(*ratio))
            : "its time to the reference's loss could not be measured";
  notes_.push_back(
      fmt::format("'{}' is not kept: {}; it would have to be shorter for sure.", setting_text(best_), found));
  say(notes_.back());
  rejected_.push_back({members_, Rejection::Reason::Pairs});
  confirmed_.reset();
  return true;
}

std::optional<measure::RatioEstimate> Tuning::confirming_blocks(const Setting& best, double until, int most) {
  std::vector<double> reference, mine;
  for (int block = 0; block < most; ++block) {
    if (static_cast<int>(mine.size()) >= kLeastConfirmingBlocks && spent() >= until) break;
    const TrialPool::Block result = run_block({}, best, block);
    if (!result.a || !result.b) {
      notes_.push_back(fmt::format("'{}' failed while it was confirmed: {}", setting_text(best), result.failure));
      return std::nullopt;
    }
    reference.push_back(*result.a);
    mine.push_back(*result.b);
  }
  reference_seconds_ = measure::median(reference);
  best_seconds_ = measure::median(mine);
  // How blocks resemble each other here is known from all of the search's, not from these few alone.
  measure::BlockCorrelation known;
  if (search_) known = search_->correlation();
  const measure::RatioEstimate estimate = measure::compare_blocks(reference, mine, 0.95, 1, known);
  confirming_reference_ = std::move(reference), confirming_best_ = std::move(mine);
  return estimate;
}

// False when fresh blocks do not show the gain.
bool Tuning::confirm() {
  say(fmt::format("[{:.0f} s] Confirming '{}' with fresh blocks ...", spent(), setting_text(best_)));
  confirmed_ = confirming_blocks(best_, request_.budget_seconds, kMostConfirmingBlocks);
  stop_if_asked();
  if (!confirmed_) return false;
  say(fmt::format("Against the reference: {}", gain_text(*confirmed_)));
  if (confirmed_->interval.low > 1) return true;
  rejected_.push_back({members_, Rejection::Reason::Pairs});
  notes_.push_back(fmt::format("'{}' seemed faster in the search, but fresh blocks did not confirm it ({}).",
                               setting_text(best_), gain_text(*confirmed_)));
  return false;
}

}  // namespace redline::tune
