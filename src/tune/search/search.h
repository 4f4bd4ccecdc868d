// The order of trials: an ask-and-tell object without clock or threads. Ask next() for two settings to run in one
// interleaved block, tell it their seconds per sample (or that one failed), until it has nothing left worth a block or
// the budget is gone. Always has a best so far.
//
// 1. All switches that are predicted to gain in company, together, against the reference: a short budget must not be
// spent on
//    parts of what is better as a whole. Where that wins, each other candidate is tried on top of it, most promising
//    first. On top of a best, a switch need not prove its gain to be kept: it is enough that its blocks and its
//    prediction together speak for 1 %, or 2 % where it changes what is trained (which the user has allowed).
// 2. From that best, each switch is taken out again (leave-one-out); one that does not help is dropped. Time
//    for this is kept back from the other candidates on top, which have their turn after it.
// 3. Each candidate alone against the reference (the ledger's add-one-in), the parts of the best first, then the most
//    promising; a candidate whose ceiling is below 2 % is not tried.
// 4. The others are tried on top of the best, those that lost alone included unless they lost badly: a larger batch may
//    pay only once buckets have removed its padding. A value of a group that is taken replaces the one that is there.
//    Where that changed the best, its parts are taken out once more.
// 5. Candidates expected to lose, as far as they might gain all the same, and those that are only for the ledger; one
//    that surprises goes through 4 again. With `full_ledger` every one of them.
// 6. What the noise left undecided, with twice the blocks and a stricter level, as long as there is time and more than
//    2 % to gain: first the guess, then each on top of the best.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tune/search/candidates.h"
#include "tune/search/race.h"

namespace redline::tune {

struct SearchOptions {
  double budget_seconds = 180;
  double least_gain = 0.02;
  RaceOptions race{};
  bool leave_one_out = true;
  bool full_ledger = false;      // also race what cannot gain
  double hopeless_ratio = 0.85;  // slower than this alone: not tried on top of the best
  // Predicted gain of values that shape the plan, together; none: each as if it were alone.
  std::function<double(const Setting&)> plan_gain{};
};

// Two settings for one block.
struct Pairing {
  Setting a, b;  // b challenges a
  std::string reason;
  int block = 0;
};

enum class EntryState { Untried, Better, NotBetter, Failed, Pruned, OutOfBudget };

struct Entry {
  Candidate candidate;
  EntryState state = EntryState::Untried;
  std::optional<measure::RatioEstimate> alone{};    // against the reference
  std::optional<measure::RatioEstimate> removed{};  // best without it against best: < 1 means it helps
  std::string note{};                               // why pruned or how it failed
  bool guessed = false;                             // part of the first guess
  std::optional<measure::RatioEstimate> on_top{};   // of the guess, against the guess
  bool failed_on_top = false;                       // with the best; alone it may run
  // Its last race neither showed a gain nor ruled one out: what is believed of it now, on the log scale.
  struct Open {
    double gain = 0, deviation = 0;
    bool alone = true;  // against the reference, not on top of a best
  };
  std::optional<Open> open{};
};

class Search {
 public:
  Search(std::vector<Candidate> candidates, SearchOptions options);

  // The next block, or nothing: done or out of budget. `spent_seconds` is what has been used so far.
  std::optional<Pairing> next(double spent_seconds);
  // Seconds per sample of both; nullopt for one that failed, with the reason.
  void report(std::optional<double> a_seconds, std::optional<double> b_seconds, const std::string& failure = {});

  // Known before it begins, e.g. the trial that killed an earlier call; costs none of the budget.
  void fail(const std::string& setting, const std::string& why);

  const Setting& best() const { return best_; }
  // How a setting did against the reference; nullopt where they did not meet.
  std::optional<measure::RatioEstimate> against_reference(const Setting& setting) const;
  const std::vector<size_t>& members() const { return members_; }  // entries that make up the best
  const std::vector<Entry>& entries() const { return entries_; }
  // What might still be gained, with 95 % confidence: of each group the most promising value that was not tried, as
  // predicted, or was left undecided, as its blocks and its prediction say. 0.07 = at most 7 %.
  double untested_gain() const;
  // Not tried, and nothing predicts them.
  std::vector<std::string> unknown() const;
  bool out_of_budget() const { return out_of_budget_; }
  int blocks() const { return blocks_; }

 private:
  enum class Stage { Guess, Neighbours, AddOneIn, Combine, LeaveOneOut, Leftovers, Again, Done };
  bool start_next_race();
  bool start_guess();
  bool start_neighbour();
  bool start_alone();
  bool start_combine();
  bool start_leave_one_out();
  bool start_again();
  void begin_neighbours();
  void begin_alone(Stage stage);
  bool begin_again();
  Entry::Open left_to_gain(size_t entry) const;
  bool may_gain(size_t entry) const;
  std::optional<Entry::Open> left_open(size_t entry) const;
  bool is_member(size_t entry) const;
  bool met(const Setting& a, const Setting& b) const;
  bool met_either_way(const Setting& a, const Setting& b) const;
  void finish_race(RaceDecision decision);
  void finish_guess(RaceDecision decision);
  void fail_guess(const std::string& failure);
  void end_guess();
  void begin_combine();
  void begin_leave_one_out();
  bool must_take_apart();
  Setting on_top_of_best(size_t entry) const;
  double predicted_together(const std::vector<size_t>& entries) const;
  double expected_on_top(size_t entry) const;
  double expected_without(size_t entry) const;
  Race::Belief believed(size_t entry) const;
  bool worth_keeping(size_t entry) const;
  void see_noise();
  double noise() const { return freedom_ > 0 ? std::sqrt(squares_ / freedom_) : 0; }  // between blocks, over all races
  void adopt(size_t entry);
  void leave_group(std::vector<size_t>& entries, size_t entry) const;
  void start(size_t entry, Setting a, Setting b, const char* how);

  SearchOptions options_;
  std::vector<Entry> entries_;
  std::vector<size_t> order_;                                                  // entries by predicted gain
  std::vector<size_t> queue_;                                                  // of the stage
  std::vector<size_t> members_;                                                // of the best setting
  std::map<std::pair<std::string, std::string>, measure::RatioEstimate> met_;  // b against a, of races that ended
  size_t cursor_ = 0;
  Stage stage_ = Stage::Guess;
  Setting best_;
  std::optional<Race> race_;
  Pairing pairing_;
  size_t racing_ = 0;
  int blocks_ = 0, timed_blocks_ = 0, combine_passes_ = 0;  // timed: those that did not fail
  double squares_ = 0, freedom_ = 0;
  double begun_seconds_ = 0, spent_seconds_ = 0;  // when the first block began, and now
  bool out_of_budget_ = false, changed_ = false, alone_done_ = false, leftovers_done_ = false, guess_undecided_ = false,
       single_guess_ = false, neighbours_wait_ = false;
  std::optional<double> kept_seconds_;  // to take the best apart; not known before the guess is decided
};

}  // namespace redline::tune
