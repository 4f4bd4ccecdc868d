// One call of the tuner: its state, and what happens to it between a clock and the decisions of search, race,
// candidates and certify. tuning.cpp has job and trials, the other files what their names say.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/time.h"
#include "tune/proof/evidence.h"
#include "tune/proof/fallback.h"
#include "tune/search/search.h"
#include "tune/trials/trial_pool.h"
#include "tune/tuner.h"

namespace redline::tune {

inline constexpr double kProofShare = 0.2;       // of the budget, for proving step by step
inline constexpr double kMostProofShare = 0.45;  // for pairs of runs: a switch whose proof takes longer is not tried
inline constexpr int kExactProofRuns = 4;        // the winner, the reference and two roundings of it
inline constexpr const char* kKilled = "the process was killed during this trial";

// "+12.3 % (+4.5 to +20.1)"
std::string gain_text(const measure::RatioEstimate& estimate);

// A budget as it is typed, rounded up to half a minute: "330s".
std::string budget_text(double seconds);

class Tuning {
 public:
  explicit Tuning(const TuneRequest& request)
      : request_(request), jobs_{request.registry, request.source, request.machine}, begin_(now_ns()) {}

  TuneResult run() {
    read_job();
    if (auto known = from_card()) return *known;
    measure_machine();
    observe(request_.budget_seconds);
    return tune();
  }

  std::vector<CertifyRow> certify_named(const CertifyRequest& what);
  std::vector<RaceRow> race(const std::vector<Setting>& settings, int blocks, double turn_seconds);

 private:
  double spent() const { return seconds_between(begin_, now_ns()); }
  void say(const std::string& text) const {
    if (request_.say) request_.say(text);
  }

  void read_job();
  std::set<std::string> kept() const;
  std::optional<TuneResult> from_card();
  std::string card_refusal(const Setting& values) const;
  TuneResult tune();
  TuneResult recheck(measure::TuneCard card);
  bool holds_here(const measure::TuneCard& card, const Setting& values);
  void measure_machine();
  void observe(std::optional<double> budget_seconds);
  void fit_memory(int64_t rows);
  void make_pool(double turn_seconds);
  void stop_if_asked() const;
  TrialPool::Block run_block(const Setting& a, const Setting& b, int block);
  void calibrate();
  std::optional<measure::RatioEstimate> calibrating_blocks(const Setting& a, const Setting& b);
  void search();
  std::vector<Candidate> candidates() const;
  std::vector<Candidate> same_candidates() const;
  double samples_factor(const Setting& setting) const;
  // Pairs of runs, planned once for all candidates.
  void plan_pairs();
  double pair_run_seconds(int64_t steps) const;
  double least_proof_seconds(const Setting& setting) const;
  double usual_proof_seconds() const;
  std::string pairs_refusal(const Setting& setting) const;
  // What a sample is worth under a setting against the reference's, as the noise of its gradients predicts.
  double efficiency(const Setting& setting) const;
  std::optional<double> goodput(std::optional<double> seconds, const Setting& setting) const;
  void say_what_is_missing(const std::vector<Candidate>& all);
  void answer(measure::Ledger& ledger);
  double confirm_seconds() const;
  double largest_batch_seconds() const;
  EvidenceOptions proof_options(const std::vector<Candidate>& members) const;
  void prove_and_confirm();
  bool prove();
  bool takes_longer();
  bool has_time_for_pairs() const;
  void not_tried_for_time(const std::vector<size_t>& part);
  std::string time_for_pairs(const measure::PairedEvidence& paired) const;
  std::vector<Contender> contenders() const;
  void choose(std::vector<size_t> members);
  std::vector<Candidate> chosen() const;
  void find_largest_batch();
  bool confirm();
  std::optional<measure::RatioEstimate> confirming_blocks(const Setting& best, double until, int most);
  bool answers_this_budget(const measure::TuneCard& card) const;
  TuneResult finish(measure::Ledger ledger, const Setting& values, double budget_seconds, bool full_ledger);

  const TuneRequest& request_;
  JobSource jobs_;
  int64_t begin_;
  std::unique_ptr<train::Job> job_;
  std::unique_ptr<task::Task> task_;
  JobView view_;
  measure::TuneFingerprint print_;
  std::filesystem::path card_path_;
  doctor::Observation seen_;
  int64_t memory_limit_ = 0;
  std::unique_ptr<TrialPool> pool_;
  std::optional<doctor::PlanModel> plans_;
  std::vector<std::vector<double>> calibrating_;  // log ratios of the blocks of each race
  std::unique_ptr<Search> search_;
  std::vector<size_t> members_;  // of the search's entries: what is proved and confirmed
  Setting best_;                 // their values
  ReferenceCurves curves_;
  std::unique_ptr<HeldOutRuns> runs_;  // null: no time for pairs
  int most_pairs_ = 0;
  double build_seconds_ = 0.2;  // of a trial, before its first step
  std::vector<Rejection> rejected_;
  measure::ErrorShares shares_;  // of the certificates by pairs
  std::optional<measure::Certificate> certificate_;
  int64_t peak_bytes_ = 0;
  std::optional<measure::LargestBatch> largest_;
  std::optional<measure::RatioEstimate> confirmed_;
  double reference_seconds_ = 0, best_seconds_ = 0;  // per sample, of the confirming blocks
  std::vector<double> confirming_reference_, confirming_best_;
  std::vector<double> reference_seen_;  // the same of every block with the reference
  std::vector<std::string> notes_;
  std::string killed_;  // the setting an earlier call was trying when it ended
};

}  // namespace redline::tune
