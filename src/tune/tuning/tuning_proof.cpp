// What the search leaves of the budget: the winner is proved, its memory is looked at, and its gain confirmed.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "tune/proof/fallback.h"
#include "tune/tuning/tuning.h"

namespace redline::tune {

namespace {

constexpr double kConfirmShare = 0.15, kLargestBatchShare = 0.1;  // of the budget
constexpr int kLeastConfirmingBlocks = 5, kMostConfirmingBlocks = 12;
constexpr int kMostCertificates = 4;

}  // namespace

double Tuning::curve_proof_seconds(const Setting& setting) const {
  return curve_runs({}) * static_cast<double>(least_curve_steps(samples_factor(setting))) * seen_.bare_step_seconds();
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
  const double seconds = kProofShare * request_.budget_seconds / 1.5;
  const double step = std::max(1e-4, seen_.bare_step_seconds());
  Setting winner;
  for (const Candidate& member : members) winner = combine(winner, member.values);
  const auto paid = [&](double share, int runs) { return static_cast<int64_t>(share * seconds / runs / step); };
  const bool exact = std::all_of(members.begin(), members.end(), proved_step_by_step);
  options.steps = std::clamp<int64_t>(paid(exact ? 1.0 : 0.2, kExactProofRuns), 4, 20);
  options.curve_steps = std::clamp<int64_t>(paid(0.8, curve_runs(options)), least_curve_steps(samples_factor(winner)),
                                            std::max<int64_t>(400, least_curve_steps(samples_factor(winner))));
  return options;
}

void Tuning::prove() {
  pool_->drop_all();
  std::vector<Rejection> rejected;
  for (int round = 0; round < kMostCertificates && !best_.empty(); ++round) {
    EvidenceOptions options = proof_options(chosen());
    options.known = &curves_;
    say(fmt::format("[{:.0f} s] Does '{}' train like the reference? ...", spent(), setting_text(best_)));
    Proof proof;
    Rejection rejection{members_, Rejection::Reason::DoesNotRun};
    try {
      const QuietLog quiet;
      const TrialPool::Journal journal(card_path_.string() + ".running", best_);
      if (const auto known = pool_->failure_of(best_)) throw Error(ExitCode::Failure, *known);
      proof = certify(jobs_, chosen(), options);
      if (proof.certificate.accepted())
        peak_bytes_ = pool_->probe(best_);
      else
        rejection.reason = proof.failed_step_by_step ? Rejection::Reason::StepByStep : Rejection::Reason::Curve;
    } catch (const std::exception& error) {
      proof.certificate = {};
      proof.certificate.reason = fmt::format("It does not run: {}", error.what());
    }
    stop_if_asked();
    say(fmt::format("Certificate: {}. {}", measure::certificate_kind_name(proof.certificate.kind),
                    proof.certificate.reason));
    certificate_ = proof.certificate;
    if (certificate_->accepted()) return;
    notes_.push_back(fmt::format("'{}' was rejected: {}", setting_text(best_), certificate_->reason));
    rejected.push_back(std::move(rejection));
    const bool last = round + 2 == kMostCertificates || spent() > request_.budget_seconds - confirm_seconds();
    choose(next_best(search_->entries(), rejected, last));
  }
  choose({});
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

void Tuning::confirm() {
  if (best_.empty()) return;
  say(fmt::format("[{:.0f} s] Confirming '{}' with fresh blocks ...", spent(), setting_text(best_)));
  confirmed_ = confirming_blocks(best_, request_.budget_seconds, kMostConfirmingBlocks);
  stop_if_asked();
  if (confirmed_) {
    say(fmt::format("Against the reference: {}", gain_text(*confirmed_)));
    if (confirmed_->interval.low > 1) return;
    notes_.push_back(fmt::format("'{}' seemed faster in the search, but fresh blocks did not confirm it ({}).",
                                 setting_text(best_), gain_text(*confirmed_)));
  }
  choose({});
}

}  // namespace redline::tune
