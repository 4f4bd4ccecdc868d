#include "tune/search.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"

namespace redline::tune {

Search::Search(std::vector<Candidate> candidates, SearchOptions options) : options_(options) {
  options_.race.least_gain = options_.least_gain;
  for (Candidate& candidate : candidates) {
    Entry entry{std::move(candidate), EntryState::Untried, {}, {}, {}};
    if (entry.candidate.ceiling < options_.least_gain) {
      entry.state = EntryState::Pruned;
      entry.note = "its ceiling is below what is worth a trial";
    }
    entries_.push_back(std::move(entry));
  }
  order_.resize(entries_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    return entries_[a].candidate.predicted_gain > entries_[b].candidate.predicted_gain;
  });
}

std::optional<Trial> Search::next(double spent_seconds) {
  if (spent_seconds >= options_.budget_seconds && stage_ != Stage::Done) {
    out_of_budget_ = true;
    for (Entry& entry : entries_)
      if (entry.state == EntryState::Untried) entry.state = EntryState::OutOfBudget;
    stage_ = Stage::Done;
  }
  if (!race_ && !start_next_race()) return std::nullopt;
  trial_.block = race_->blocks();
  return trial_;
}

void Search::report(std::optional<double> a_seconds, std::optional<double> b_seconds, const std::string& failure) {
  REDLINE_CHECK(race_.has_value(), "a result belongs to a trial that was asked for");
  ++blocks_;
  Entry& entry = entries_[racing_];
  if (!a_seconds || !b_seconds) {
    entry.note = failure;
    if (stage_ != Stage::LeaveOneOut) entry.state = EntryState::Failed;
    race_.reset();
    ++cursor_;
    return;
  }
  race_->add(*a_seconds, *b_seconds);
  const RaceDecision decision = race_->decide();
  if (decision != RaceDecision::Continue) finish_race(decision == RaceDecision::Better);
}

void Search::finish_race(bool better) {
  Entry& entry = entries_[racing_];
  const measure::RatioEstimate estimate = race_->estimate();
  race_.reset();
  ++cursor_;
  switch (stage_) {
    case Stage::AddOneIn:
      entry.alone = estimate;
      entry.state = better ? EntryState::Better : EntryState::NotBetter;
      // Always a best so far: the best single switch stands until the combination is known.
      if (better && (members_.empty() || estimate.ratio > entries_[members_[0]].alone->ratio)) {
        members_ = {racing_};
        best_ = entry.candidate.values;
      }
      break;
    case Stage::Combine:
      if (better) {
        best_ = combine(best_, entry.candidate.values);
        members_.push_back(racing_);
      }
      break;
    case Stage::LeaveOneOut:
      entry.removed = estimate;
      // `better` here: the setting without it is at least as fast beyond doubt, so it goes.
      if (better) {
        best_ = without(best_, entry.candidate.values);
        std::erase(members_, racing_);
      }
      break;
    case Stage::Done:
      break;
  }
}

bool Search::start_next_race() {
  for (;;) {
    switch (stage_) {
      case Stage::AddOneIn:
        if (start_add_one_in()) return true;
        begin_combine();
        break;
      case Stage::Combine:
        if (start_combine()) return true;
        stage_ = options_.leave_one_out && members_.size() > 1 ? Stage::LeaveOneOut : Stage::Done;
        winners_ = members_;
        cursor_ = 0;
        break;
      case Stage::LeaveOneOut:
        if (start_leave_one_out()) return true;
        stage_ = Stage::Done;
        break;
      case Stage::Done:
        return false;
    }
  }
}

bool Search::start_add_one_in() {
  while (cursor_ < order_.size() && entries_[order_[cursor_]].state != EntryState::Untried) ++cursor_;
  if (cursor_ == order_.size()) return false;
  racing_ = order_[cursor_];
  trial_ = {{}, entries_[racing_].candidate.values, "alone: " + entries_[racing_].candidate.name, 0};
  race_.emplace(options_.race);
  return true;
}

void Search::begin_combine() {
  stage_ = Stage::Combine;
  cursor_ = 0;
  winners_.clear();
  for (size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].state == EntryState::Better) winners_.push_back(i);
  std::stable_sort(winners_.begin(), winners_.end(),
                   [&](size_t a, size_t b) { return entries_[a].alone->ratio > entries_[b].alone->ratio; });
  if (!winners_.empty()) cursor_ = 1;  // the first is the best already
}

bool Search::start_combine() {
  for (; cursor_ < winners_.size(); ++cursor_) {
    const Candidate& candidate = entries_[winners_[cursor_]].candidate;
    const bool excluded = std::any_of(members_.begin(), members_.end(), [&](size_t m) {
      return !candidate.group.empty() && entries_[m].candidate.group == candidate.group;
    });
    if (excluded) continue;  // another value of the same switch was faster
    racing_ = winners_[cursor_];
    trial_ = {best_, combine(best_, candidate.values), "added to the best: " + candidate.name, 0};
    race_.emplace(options_.race);
    return true;
  }
  return false;
}

bool Search::start_leave_one_out() {
  if (cursor_ >= winners_.size() || members_.size() < 2) return false;
  racing_ = winners_[cursor_];
  trial_ = {best_, without(best_, entries_[racing_].candidate.values),
            "taken out of the best: " + entries_[racing_].candidate.name, 0};
  RaceOptions options = options_.race;
  options.least_gain = 0.0;
  options.most_blocks = std::min(options.most_blocks, 5);
  race_.emplace(options);
  return true;
}

double Search::untested_gain() const {
  double factor = 1;
  for (const Entry& entry : entries_) {
    if (entry.state != EntryState::Untried && entry.state != EntryState::OutOfBudget) continue;
    const double most =
        entry.candidate.ceiling < 1e8 ? entry.candidate.ceiling : std::max(0.0, entry.candidate.predicted_gain);
    factor *= 1 + most;
  }
  return factor - 1;
}

}  // namespace redline::tune
