// The order of trials: an ask-and-tell object without clock or threads. Ask next() for two settings to run in one
// interleaved block, tell it their seconds per sample (or that one failed), until nothing is worth a block any more or
// the budget is gone. Always has a best so far, and an estimate of every switch.
//
// One model of log speed (speed_model.h) holds all that is known: the predictions at first, every block on top of them.
// The best is the combination of largest believed speed, where a switch must be worth 1 %, or 2 % if it changes what is
// trained. The next block is the one that is worth most per second: what knowing its outcome is expected to add to the
// final choice (acquisition.h), and a little for each row of the ledger that it makes narrower. Pairings that come into
// question: the best against the reference, against itself with one value more, less or another, and each value alone.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "measure/statistics.h"
#include "tune/search/candidates.h"
#include "tune/search/speed_model.h"

namespace redline::tune {

struct SearchOptions {
  double budget_seconds = 180;
  double least_gain = 0.02;  // of a switch that changes what is trained; half of it of any other
  bool full_ledger = false;  // also race what cannot gain, until every row is known
  // Predicted gain of values that shape the plan, together; none: each as if it were alone.
  std::function<double(const Setting&)> plan_gain{};
  std::vector<std::vector<double>> earlier_races{};  // log ratios, block by block: what noise this machine has
};

// Two settings for one block.
struct Pairing {
  Setting a, b;  // b challenges a
  std::string reason;
  int block = 0;  // of these two
};

enum class EntryState { Untried, Better, NotBetter, Failed, Pruned };

// What is believed of a switch in one company, as ratios of speed.
struct SwitchEstimate {
  measure::RatioEstimate now;                    // prediction and blocks
  std::optional<measure::RatioEstimate> blocks;  // the blocks alone; none where they say nothing
  double chance = 1;  // that blocks without any effect would have looked like this at any time
};

inline constexpr int kBlocksOfAClaim = 3;  // fewer show nothing: one may have been held up

struct Entry {
  Candidate candidate;
  EntryState state = EntryState::Untried;
  std::optional<measure::RatioEstimate> alone{};  // as believed, once a block told something of it
  std::string note{};                             // why pruned or how it failed
  measure::Interval predicted{1, 1};              // 95 %, before any block
  SwitchEstimate against_reference{}, in_best{};  // in_best: with it against without it
  int blocks = 0;                                 // in which the two settings differ by it
};

class Search {
 public:
  Search(std::vector<Candidate> candidates, SearchOptions options);
  Search(const Search&) = delete;  // its model asks it for predictions
  Search& operator=(const Search&) = delete;

  // The next block, or nothing: done or out of budget. `spent_seconds` is what has been used so far.
  std::optional<Pairing> next(double spent_seconds);
  // Seconds per sample of both; nullopt for the one that failed, with the reason. Of two, b is to blame: a ran before.
  void report(std::optional<double> a_seconds, std::optional<double> b_seconds, const std::string& failure = {});

  // Known before it begins, e.g. the trial that killed an earlier call; costs none of the budget.
  void fail(const std::string& setting, const std::string& why);

  const Setting& best() const { return best_; }
  const std::vector<size_t>& members() const { return members_; }  // entries that make up the best
  const std::vector<Entry>& entries() const { return entries_; }
  // What one more change could still gain, with 95 % confidence; 0.07 = at most 7 %.
  double untested_gain() const;
  // Nothing is known of them: neither a rule nor a block.
  std::vector<std::string> unknown() const;
  bool out_of_budget() const { return out_of_budget_; }
  int blocks() const { return model_->blocks(); }
  // How a block resembles the one before it, as all blocks together show.
  measure::BlockCorrelation correlation() const { return {kSlowStays * model_->noise().slow, model_->noise().freedom}; }

 private:
  struct Option {
    Contrast contrast;
    std::string reason;
  };
  struct Row {
    SpeedModel::View alone, in_best;
  };
  double predicted(const Combination& combination) const;
  double price(const Combination& combination) const;
  double value(const Combination& combination);
  bool runs(const Combination& combination) const;
  bool may_join(size_t entry) const;
  Combination with(Combination combination, size_t entry) const;
  Combination none() const { return Combination(groups_, kNoValue); }
  Setting setting_of(const Combination& combination) const;
  void update();
  Combination climb(Combination from);
  SwitchEstimate estimate(const SpeedModel::View& view, int blocks) const;
  std::vector<Option> options() const;
  std::vector<SpeedModel::View> alternatives() const;
  double ledger_gain(const SpeedModel::View& option, double scale) const;
  bool open(const Entry& entry, const SwitchEstimate& estimate) const;
  int unseen(const Contrast& contrast) const;
  double seconds_of(const Contrast& contrast, int blocks) const;
  void see_seconds(double spent_seconds);

  SearchOptions options_;
  std::vector<Entry> entries_;
  std::vector<size_t> group_of_;
  size_t groups_ = 0;
  std::optional<SpeedModel> model_;
  std::set<Combination> failed_;  // nor is anything tried that contains one of them, but for what ran
  std::set<Combination> ran_combinations_;
  std::set<size_t> ran_, suspects_;  // switches that have run; those that failed in company and must first run alone
  Combination best_combination_;
  Setting best_;
  std::vector<size_t> members_;
  std::vector<Row> rows_;
  std::map<Combination, double> values_;
  std::optional<Option> asked_;
  std::list<Combination> recent_;  // that the pool has alive
  double asked_seconds_ = 0, block_seconds_ = 0, start_seconds_ = 0;
  int timed_blocks_ = 0, timed_starts_ = 0, asked_starts_ = 0;
  bool out_of_budget_ = false;
};

}  // namespace redline::tune
