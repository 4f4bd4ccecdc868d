#include "tune/search/search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/check.h"

namespace redline::tune {

namespace {
constexpr int kMostCombinePasses = 2;
constexpr double kLostGuess = 0.9;
constexpr int kNeighbourBlocks = 4;       // most blocks of a race on top of a best that is only a guess yet
constexpr int kApartBlocks = 4;           // most blocks of a race of the best against itself without one part
constexpr double kMostApartShare = 0.5;   // of what is left after the guess: kept for them
constexpr double kLeastToKeep = 12;       // blocks left after the guess: with fewer, nothing is kept
constexpr int kMostBlocks = 64;           // of a race that stays undecided
constexpr double kLaterError = 0.4;       // of the level before, each time the undecided are raced again
constexpr double kLeastPromising = -0.1;  // expected to lose more than this on top of the guess: later, if at all
// Switches are added and taken out one by one, which needs each option to belong to one of them.
void check_disjoint(const std::vector<Entry>& entries) {
  std::map<std::string, std::string> owners;
  for (const Entry& entry : entries)
    for (const auto& [path, value] : entry.candidate.values) {
      if (entry.candidate.ledger_only) continue;
      const std::string& group = entry.candidate.group;
      const auto [owner, added] = owners.try_emplace(path, group);
      REDLINE_CHECK(added || owner->second == group, "two groups of switches must not set the same option");
    }
}
}  // namespace

Search::Search(std::vector<Candidate> candidates, SearchOptions options) : options_(options) {
  options_.race.least_gain = options_.least_gain;
  options_.race.error *= 1 - kLaterError;  // so that all rounds together err no more often
  for (Candidate& candidate : candidates) {
    Entry entry{std::move(candidate)};
    if (!entry.candidate.not_tried.empty()) {
      entry.state = entry.candidate.over_budget ? EntryState::OutOfBudget : EntryState::Pruned;
      entry.note = entry.candidate.not_tried;
    } else if (entry.candidate.ceiling < options_.least_gain) {
      entry.state = EntryState::Pruned;
      entry.note = "its ceiling is below what is worth a trial";
    }
    entries_.push_back(std::move(entry));
  }
  check_disjoint(entries_);
  order_.resize(entries_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    return entries_[a].candidate.predicted_gain > entries_[b].candidate.predicted_gain;
  });
}

bool Search::is_member(size_t entry) const {
  return std::find(members_.begin(), members_.end(), entry) != members_.end();
}

std::optional<measure::RatioEstimate> Search::against_reference(const Setting& setting) const {
  const auto race = met_.find({setting_text({}), setting_text(setting)});
  return race == met_.end() ? std::nullopt : std::optional(race->second);
}

bool Search::met(const Setting& a, const Setting& b) const {
  return met_.count({setting_text(a), setting_text(b)}) != 0;
}
bool Search::met_either_way(const Setting& a, const Setting& b) const { return met(a, b) || met(b, a); }

void Search::fail(const std::string& setting, const std::string& why) {
  for (Entry& entry : entries_) {
    if (entry.candidate.values.empty() || setting_text(entry.candidate.values) != setting) continue;
    entry.state = EntryState::Failed;
    entry.note = why;
  }
}

std::optional<Pairing> Search::next(double spent_seconds) {
  if (spent_seconds >= options_.budget_seconds && stage_ != Stage::Done) {
    out_of_budget_ = true;
    // A race that was cut off still says something: its blocks are an estimate, only no decision.
    if (race_ && race_->blocks() >= 2 && (stage_ == Stage::AddOneIn || stage_ == Stage::Leftovers)) {
      entries_[racing_].alone = race_->estimate();
      entries_[racing_].state = EntryState::NotBetter;
      entries_[racing_].note = "the budget ended before this was decided";
      entries_[racing_].open = left_open(racing_);
    }
    if (race_ && race_->blocks() >= 2 && stage_ == Stage::LeaveOneOut) entries_[racing_].removed = race_->estimate();
    race_.reset();
    for (Entry& entry : entries_) {
      if (entry.state == EntryState::Untried) entry.state = EntryState::OutOfBudget;
      if (stage_ == Stage::Guess) entry.guessed = false;  // nothing is known of it
    }
    stage_ = Stage::Done;
  }
  if (blocks_ == 0) begun_seconds_ = spent_seconds;
  spent_seconds_ = spent_seconds;
  if (!race_ && !start_next_race()) return std::nullopt;
  pairing_.block = race_->blocks();
  return pairing_;
}

void Search::report(std::optional<double> a_seconds, std::optional<double> b_seconds, const std::string& failure) {
  REDLINE_CHECK(race_.has_value(), "a result belongs to a trial that was asked for");
  ++blocks_;
  timed_blocks_ += a_seconds && b_seconds;
  if (stage_ == Stage::Guess) {
    if (!a_seconds || !b_seconds) return fail_guess(failure);
    race_->add(*a_seconds, *b_seconds);
    // Nothing is claimed by giving it up: a guess that clearly loses its first blocks has no right to more.
    if (!single_guess_ && race_->estimate().ratio < kLostGuess) return finish_guess(RaceDecision::NotBetter);
    if (const RaceDecision decision = race_->decide(); decision != RaceDecision::Continue) finish_guess(decision);
    return;
  }
  Entry& entry = entries_[racing_];
  if (!a_seconds || !b_seconds) {
    entry.open.reset();
    if (stage_ == Stage::LeaveOneOut) {
      entry.note = "the rest of the best does not run without it: " + failure;
    } else if (pairing_.a.empty()) {
      entry.state = EntryState::Failed;
      entry.note = failure;
    } else {
      entry.failed_on_top = true;
      entry.note = "with the best it fails: " + failure;
    }
    race_.reset();
    ++cursor_;
    return;
  }
  race_->add(*a_seconds, *b_seconds);
  if (const RaceDecision decision = race_->decide(); decision != RaceDecision::Continue) finish_race(decision);
}

// Values of one group exclude each other.
void Search::leave_group(std::vector<size_t>& entries, size_t index) const {
  const std::string& group = entries_[index].candidate.group;
  std::erase_if(entries, [&](size_t e) { return !group.empty() && entries_[e].candidate.group == group; });
}

void Search::adopt(size_t index) {
  best_ = on_top_of_best(index);
  leave_group(members_, index);
  members_.push_back(index);
  changed_ = true;
}

void Search::finish_guess(RaceDecision decision) {
  const bool better = decision == RaceDecision::Better;
  guess_undecided_ = decision == RaceDecision::Undecided;
  if (better) best_ = pairing_.b;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].guessed && single_guess_ && race_->blocks() > 0) {  // this was its race alone
      entries_[i].alone = race_->estimate();
      entries_[i].state = better ? EntryState::Better : EntryState::NotBetter;
      if (guess_undecided_) entries_[i].open = left_open(i);
    }
    entries_[i].guessed = entries_[i].guessed && better;
    if (entries_[i].guessed) members_.push_back(i);
  }
  if (race_->blocks() > 0) met_[{setting_text({}), setting_text(pairing_.b)}] = race_->estimate();
  see_noise();
  race_.reset();
  if (better)
    begin_neighbours();
  else
    end_guess();
}

void Search::end_guess() {
  cursor_ = 0;
  if (leftovers_done_)
    stage_ = Stage::Again;
  else
    begin_alone(Stage::AddOneIn);
}

// A whole that fails says nothing of its parts; each is seen alone.
void Search::fail_guess(const std::string& failure) {
  for (Entry& entry : entries_) {
    if (entry.guessed && single_guess_) entry.state = EntryState::Failed, entry.note = failure;
    entry.guessed = false;
  }
  finish_guess(RaceDecision::NotBetter);
}

void Search::begin_neighbours() {
  stage_ = Stage::Neighbours;
  cursor_ = 0;
  combine_passes_ = 0;
  alone_done_ = false;
  queue_.clear();
  for (const size_t i : order_) {
    const Entry& entry = entries_[i];
    if ((entry.state == EntryState::Untried || entry.open) && !entry.candidate.late && !entry.candidate.ledger_only &&
        !is_member(i) && !entry.on_top && !entry.failed_on_top && !entry.removed &&
        expected_on_top(i) >= kLeastPromising)
      queue_.push_back(i);
  }
  std::stable_sort(queue_.begin(), queue_.end(),
                   [&](size_t a, size_t b) { return expected_on_top(a) > expected_on_top(b); });
}

void Search::see_noise() {
  if (race_->blocks() < 2) return;
  squares_ += std::pow(race_->deviation(), 2) * (race_->blocks() - 1);
  freedom_ += race_->blocks() - 1;
}

void Search::finish_race(RaceDecision decision) {
  Entry& entry = entries_[racing_];
  const measure::RatioEstimate estimate = race_->estimate();
  const bool better = decision == RaceDecision::Better;
  const bool keep = (better && stage_ != Stage::LeaveOneOut) || worth_keeping(racing_);
  if (stage_ != Stage::LeaveOneOut)
    entry.open = decision == RaceDecision::Undecided ? left_open(racing_) : std::nullopt;
  met_[{setting_text(pairing_.a), setting_text(pairing_.b)}] = estimate;
  see_noise();
  race_.reset();
  ++cursor_;
  switch (stage_) {
    case Stage::Guess:
      break;
    case Stage::Neighbours:
      entry.on_top = estimate;
      if (keep) adopt(racing_);
      break;
    case Stage::AddOneIn:
    case Stage::Leftovers:
      entry.alone = estimate;
      entry.state = better ? EntryState::Better : EntryState::NotBetter;
      // Always a best so far: the best single switch stands until the combination is known. Two that have met directly
      // are not compared again by way of the reference.
      if (better && !entry.candidate.ledger_only &&
          (members_.empty() ||
           (stage_ == Stage::AddOneIn && members_.size() == 1 && entries_[members_[0]].alone &&
            estimate.ratio > entries_[members_[0]].alone->ratio && !met(best_, on_top_of_best(racing_))))) {
        members_ = {racing_};
        best_ = entry.candidate.values;
      }
      break;
    case Stage::Combine:
      if (keep) adopt(racing_);
      break;
    case Stage::Again:
      if (pairing_.a.empty()) entry.alone = estimate, entry.state = better ? EntryState::Better : EntryState::NotBetter;
      if (better || (keep && !best_.empty())) adopt(racing_);
      break;
    case Stage::LeaveOneOut:
      entry.removed = estimate;
      // `better` here: the setting without it is faster beyond doubt, so it goes. What was only guessed must be worth
      // it.
      if (better || (entry.guessed && !keep)) {
        best_ = without(best_, entry.candidate.values);
        std::erase(members_, racing_);
        entry.open.reset();  // what was believed of it before is answered
      }
      break;
    case Stage::Done:
      break;
  }
}

bool Search::start_next_race() {
  for (;;) {
    switch (stage_) {
      case Stage::Guess:
        if (start_guess()) return true;
        end_guess();
        break;
      case Stage::Neighbours:
        if (start_neighbour()) return true;
        begin_leave_one_out();
        break;
      case Stage::AddOneIn:
        if (start_alone()) return true;
        alone_done_ = true;
        begin_combine();
        break;
      case Stage::Combine:
        if (start_combine()) return true;
        if (changed_ && combine_passes_ < kMostCombinePasses)
          begin_combine();
        else
          begin_leave_one_out();
        break;
      case Stage::LeaveOneOut:
        if (start_leave_one_out()) return true;
        if (std::exchange(neighbours_wait_, false))
          begin_neighbours();
        else if (!alone_done_)
          begin_alone(Stage::AddOneIn);
        else if (!leftovers_done_)
          begin_alone(Stage::Leftovers);
        else if (!begin_again())
          stage_ = Stage::Done;
        break;
      case Stage::Leftovers:
        if (start_alone()) return true;
        leftovers_done_ = true;
        combine_passes_ = 0;
        begin_combine();
        break;
      case Stage::Again:
        if (start_again()) return true;
        combine_passes_ = 0;
        begin_combine();
        break;
      case Stage::Done:
        return false;
    }
  }
}

// Twice the blocks for what the noise left open; false when nothing is.
bool Search::begin_again() {
  queue_.clear();
  for (size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].open && may_gain(i)) queue_.push_back(i);
  if (queue_.empty() || 2 * options_.race.most_blocks > kMostBlocks) return false;
  if (!options_.full_ledger && untested_gain() < options_.least_gain) return false;
  std::stable_sort(queue_.begin(), queue_.end(),
                   [&](size_t a, size_t b) { return expected_on_top(a) > expected_on_top(b); });
  options_.race.most_blocks *= 2;
  options_.race.error *= kLaterError;
  cursor_ = 0;
  stage_ = best_.empty() && guess_undecided_ ? Stage::Guess : Stage::Again;
  return true;
}

bool Search::start_again() {
  for (; cursor_ < queue_.size(); ++cursor_) {
    const size_t index = queue_[cursor_];
    if (is_member(index) || !entries_[index].open) continue;
    start(index, best_, on_top_of_best(index), best_.empty() ? "again, alone: " : "again, on top of the best: ");
    return true;
  }
  return false;
}

void Search::start(size_t entry, Setting a, Setting b, const char* how) {
  racing_ = entry;
  pairing_ = {std::move(a), std::move(b), how + entries_[entry].candidate.name, 0};
  race_.emplace(options_.race);
}

bool Search::start_guess() {
  // Greedily what is expected to gain most on top of what was taken, a better value of a taken group included.
  for (size_t taken = 0; taken < entries_.size(); ++taken) {
    std::optional<size_t> most;
    double gain = 0;
    for (const size_t i : order_) {
      const Entry& entry = entries_[i];
      if ((entry.state != EntryState::Untried && !entry.open) || entry.candidate.late || entry.candidate.ledger_only ||
          is_member(i))
        continue;
      // Another value instead of one that is taken costs nothing more; a further switch must be worth it.
      const bool instead = std::any_of(members_.begin(), members_.end(), [&](size_t m) {
        return !entry.candidate.group.empty() && entries_[m].candidate.group == entry.candidate.group;
      });
      const double expected = expected_on_top(i);
      if (expected > std::max(gain, instead ? 1e-6 : options_.least_gain)) gain = expected, most = i;
    }
    if (!most) break;
    leave_group(members_, *most);
    members_.push_back(*most);
  }
  const std::vector<size_t> guess = std::exchange(members_, {});
  if (guess.empty()) return false;
  single_guess_ = guess.size() == 1;
  Setting together;
  for (const size_t i : guess) {
    entries_[i].guessed = true;
    together = combine(together, entries_[i].candidate.values);
  }
  pairing_ = {{}, std::move(together), "all that is predicted to gain, together", 0};
  race_.emplace(options_.race);
  return true;
}

// What each part of the best is worth is what a reader asks first, and a part that harms must go: some time is kept for
// that, unless a budget is so short that the other values need it all.
bool Search::must_take_apart() {
  const double left = options_.budget_seconds - spent_seconds_;
  const double block = (spent_seconds_ - begun_seconds_) / std::max(1, timed_blocks_);
  if (!kept_seconds_)
    kept_seconds_ = options_.leave_one_out && left >= kLeastToKeep * block ? kMostApartShare * left : 0;
  const double apart = std::min(*kept_seconds_, kApartBlocks * block * static_cast<double>(members_.size()));
  return apart > 0 && apart + kApartBlocks * block > left;
}

bool Search::start_neighbour() {
  for (; cursor_ < queue_.size(); ++cursor_) {
    const size_t index = queue_[cursor_];
    Setting challenger = on_top_of_best(index);
    if (is_member(index) || met_either_way(best_, challenger)) continue;
    if (must_take_apart()) {
      neighbours_wait_ = true;
      return false;
    }
    start(index, best_, std::move(challenger), "on top of the guess: ");
    RaceOptions options = options_.race;
    options.most_blocks = std::min(options.most_blocks, kNeighbourBlocks);
    race_.emplace(options);
    return true;
  }
  return false;
}

// The parts of the best first: what each is worth alone and in company is what a reader asks next.
void Search::begin_alone(Stage stage) {
  stage_ = stage;
  cursor_ = 0;
  queue_ = order_;
  std::stable_partition(queue_.begin(), queue_.end(), [&](size_t i) { return is_member(i); });
}

bool Search::start_alone() {
  const bool late = stage_ == Stage::Leftovers;
  for (; cursor_ < queue_.size(); ++cursor_) {
    const size_t index = queue_[cursor_];
    const Entry& entry = entries_[index];
    if (entry.state != EntryState::Untried || entry.candidate.late != late) continue;
    if (late && !options_.full_ledger && !entry.candidate.ledger_only && !may_gain(index)) continue;
    start(index, {}, entry.candidate.values, "alone: ");
    return true;
  }
  return false;
}

void Search::begin_combine() {
  stage_ = Stage::Combine;
  cursor_ = 0;
  changed_ = false;
  ++combine_passes_;
  queue_.clear();
  for (size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].alone && !entries_[i].failed_on_top && !entries_[i].candidate.ledger_only &&
        entries_[i].alone->ratio >= options_.hopeless_ratio)
      queue_.push_back(i);
  std::stable_sort(queue_.begin(), queue_.end(),
                   [&](size_t a, size_t b) { return entries_[a].alone->ratio > entries_[b].alone->ratio; });
}

Setting Search::on_top_of_best(size_t index) const {
  const Candidate& candidate = entries_[index].candidate;
  Setting base = best_;
  for (size_t m : members_)
    if (!candidate.group.empty() && entries_[m].candidate.group == candidate.group)
      base = without(base, entries_[m].candidate.values);
  return combine(base, candidate.values);
}

bool Search::start_combine() {
  if (best_.empty()) return false;  // nothing won: each was seen alone already
  for (; cursor_ < queue_.size(); ++cursor_) {
    const size_t index = queue_[cursor_];
    if (is_member(index)) continue;
    Setting challenger = on_top_of_best(index);
    if (challenger == best_ || met_either_way(best_, challenger)) continue;
    start(index, best_, std::move(challenger), "on top of the best: ");
    return true;
  }
  return false;
}

void Search::begin_leave_one_out() {
  stage_ = Stage::LeaveOneOut;
  kept_seconds_ = 0;
  queue_ = options_.leave_one_out && members_.size() > 1 ? members_ : std::vector<size_t>();
  std::stable_sort(queue_.begin(), queue_.end(),  // what is expected to matter most first
                   [&](size_t a, size_t b) { return expected_without(a) < expected_without(b); });
  cursor_ = 0;
}

bool Search::start_leave_one_out() {
  for (; cursor_ < queue_.size() && members_.size() > 1; ++cursor_) {
    Setting rest = without(best_, entries_[queue_[cursor_]].candidate.values);
    if (met(best_, rest)) continue;  // the best has not changed since
    // What was added last has just been raced the other way round.
    if (const auto race = met_.find({setting_text(rest), setting_text(best_)}); race != met_.end()) {
      const measure::RatioEstimate& e = race->second;
      entries_[queue_[cursor_]].removed =
          measure::RatioEstimate{1 / e.ratio, {1 / e.interval.high, 1 / e.interval.low}, e.blocks};
      continue;
    }
    start(queue_[cursor_], best_, std::move(rest), "taken out of the best: ");
    RaceOptions options = options_.race;
    options.least_gain = 0.0;
    options.most_blocks = std::min(options.most_blocks, kApartBlocks);
    race_.emplace(options);
    return true;
  }
  return false;
}

}  // namespace redline::tune
