// What a search believes of switches: how they are predicted in company, whether one is worth keeping, and what those
// that were not tried or stayed undecided may still gain.
#include <algorithm>
#include <cmath>

#include "tune/search/search.h"

namespace redline::tune {

namespace {
constexpr double kOneSided = 1.645;  // 95 %

// Standard deviation of a predicted gain on the log scale: what is predicted to change much is missed by more
// (docs/guides.md: ledgers).
double prediction_error(double predicted_log) { return 0.02 + 0.3 * std::abs(predicted_log); }
double log_gain(double gain) { return std::log(std::max(0.1, 1 + gain)); }
}  // namespace

// As a ratio to the reference: switches that shape the plan by their common plan, the others as if independent.
double Search::predicted_together(const std::vector<size_t>& entries) const {
  Setting plan;
  double ratio = 1;
  for (const size_t i : entries) {
    const Candidate& candidate = entries_[i].candidate;
    if (candidate.shapes_plan && options_.plan_gain)
      plan = combine(plan, candidate.values);
    else
      ratio *= 1 + candidate.predicted_gain;
  }
  return plan.empty() ? ratio : ratio * (1 + options_.plan_gain(plan));
}

// Predicted gain over the best, in which it may replace another value of its group.
double Search::expected_on_top(size_t index) const {
  std::vector<size_t> with = members_;
  leave_group(with, index);
  with.push_back(index);
  return predicted_together(with) / predicted_together(members_) - 1;
}

// The same of taking it out of the best.
double Search::expected_without(size_t index) const {
  std::vector<size_t> rest = members_;
  std::erase(rest, index);
  return predicted_together(rest) / predicted_together(members_) - 1;
}

// The gain of what is being raced.
Race::Belief Search::believed(size_t index) const {
  const double expected = log_gain(stage_ == Stage::LeaveOneOut ? expected_without(index)
                                   : pairing_.a.empty()         ? entries_[index].candidate.predicted_gain
                                                                : expected_on_top(index));
  return race_->believed(expected, prediction_error(expected), noise());
}

std::optional<Entry::Open> Search::left_open(size_t index) const {
  if (entries_[index].candidate.ledger_only) return std::nullopt;
  const Race::Belief belief = believed(index);
  return Entry::Open{belief.gain, belief.deviation, pairing_.a.empty()};
}

bool Search::worth_keeping(size_t index) const {
  const bool free = entries_[index].candidate.effect <= config::Effect::Numerics;
  const double least =
      free ? options_.least_gain / 2 : options_.least_gain;  // what changes the training must be worth it
  const double gain = believed(index).gain;
  return (stage_ == Stage::LeaveOneOut ? -gain : gain) > std::log1p(least);
}

// What a switch that is not part of the best would do to it: as predicted, or as its undecided race says.
Entry::Open Search::left_to_gain(size_t index) const {
  const Entry& entry = entries_[index];
  const Candidate& c = entry.candidate;
  const double alone = log_gain(c.predicted_gain), now = best_.empty() ? alone : log_gain(expected_on_top(index));
  if (!entry.open) return {std::min(now, log_gain(c.ceiling)), prediction_error(now), false};
  // Raced against the reference: on top of the best it differs as much as its predictions do.
  return {entry.open->gain + (entry.open->alone ? now - alone : 0), entry.open->deviation, false};
}

// Whether it could gain what is worth keeping, 19 times out of 20.
bool Search::may_gain(size_t index) const {
  const Entry& entry = entries_[index];
  if (is_member(index)) return false;
  if (!entry.open) {
    if (entry.state != EntryState::Untried && entry.state != EntryState::OutOfBudget) return false;
    if (entry.candidate.unpredicted) return true;
  }
  const Entry::Open left = left_to_gain(index);
  return std::min(left.gain + kOneSided * left.deviation, log_gain(entry.candidate.ceiling)) >
         std::log1p(options_.least_gain);
}

double Search::untested_gain() const {
  std::map<std::string, Entry::Open> most;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const Candidate& c = entry.candidate;
    if (c.ledger_only || c.unpredicted || !may_gain(i)) continue;
    if (!entry.open && (entry.on_top || entry.guessed)) continue;  // it has met the best
    const Entry::Open left = left_to_gain(i);
    Entry::Open& group = most.try_emplace(c.group.empty() ? c.name : c.group, left).first->second;
    if (left.gain + kOneSided * left.deviation > group.gain + kOneSided * group.deviation) group = left;
  }
  // Each group is what it is believed to be, or nothing; all of them at their upper ends at once is not to be expected.
  double gain = 0, variance = 0;
  for (const auto& [group, left] : most) gain += std::max(0.0, left.gain), variance += left.deviation * left.deviation;
  return std::expm1(gain + kOneSided * std::sqrt(variance));
}

std::vector<std::string> Search::unknown() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_)
    if (entry.candidate.unpredicted && !entry.candidate.late && !entry.on_top && !entry.failed_on_top &&
        (entry.state == EntryState::Untried || entry.state == EntryState::OutOfBudget))
      names.push_back(entry.candidate.field);
  return names;
}

}  // namespace redline::tune
