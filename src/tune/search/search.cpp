#include "tune/search/search.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "measure/student.h"
#include "tune/search/acquisition.h"

namespace redline::tune {

namespace {
constexpr double kOneSided = 1.645;      // 95 %
constexpr double kLedgerWeight = 0.03;   // of a row's narrower deviation, beside a gain of the choice
constexpr double kUnseen = 0.01;         // a prediction in twenty is off by far: of seeing a part of the best at all
constexpr double kWorthABlock = 0.0003;  // less than this is not worth a block
constexpr int kLookAhead[] = {1, 2, 4, 8, 16};  // blocks of one pairing whose worth is weighed
constexpr size_t kAlive = 3;                    // settings that the pool keeps warm
constexpr double kShown = 0.002;                // chance that nothing looks like this: a row is known
constexpr double kLateGain = -0.1;              // of what is on because it is faster, as a rule

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

bool contains(const Combination& all, const Combination& part) {
  for (size_t g = 0; g < all.size(); ++g)
    if (part[g] != kNoValue && part[g] != all[g]) return false;
  return true;
}

measure::RatioEstimate as_ratio(const Belief& belief, double quantile, int blocks) {
  const double half = quantile * std::min(5.0, belief.deviation);
  return {std::exp(belief.mean), {std::exp(belief.mean - half), std::exp(belief.mean + half)}, blocks};
}

// The chance that blocks without an effect ever look as these do, however often one looks: the inverse of how much
// better an effect of about a tenth explains them (a mixture martingale; Robbins 1970).
double chance_of_nothing(const Belief& blocks) {
  constexpr double kUsualEffect = 0.1;
  const double own = blocks.deviation * blocks.deviation, usual = kUsualEffect * kUsualEffect;
  if (!std::isfinite(own)) return 1;
  const double evidence = 0.5 * blocks.mean * blocks.mean / own * usual / (usual + own) - 0.5 * std::log1p(usual / own);
  return std::min(1.0, std::exp(-evidence));
}

}  // namespace

Search::Search(std::vector<Candidate> candidates, SearchOptions options) : options_(std::move(options)) {
  std::map<std::string, size_t> groups;
  std::vector<ModelSwitch> switches;
  for (Candidate& candidate : candidates) {
    Entry entry{std::move(candidate)};
    const Candidate& c = entry.candidate;
    if (!c.not_tried.empty()) {
      entry.state = EntryState::Pruned;
      entry.note = c.not_tried;
    } else if (c.ceiling < options_.least_gain) {
      entry.state = EntryState::Pruned;
      entry.note = "its ceiling is below what is worth a trial";
    }
    entry.predicted = {1 + c.predicted_interval().low, 1 + c.predicted_interval().high};
    const std::string group = c.group.empty() || c.ledger_only ? "only " + c.name : c.group;
    group_of_.push_back(groups.try_emplace(group, groups.size()).first->second);
    switches.push_back({group_of_.back(), c.predicted_log(), c.prediction_error(), c.works_on});
    entries_.push_back(std::move(entry));
  }
  groups_ = groups.size();
  check_disjoint(entries_);
  model_.emplace(std::move(switches), [this](const Combination& c) { return predicted(c); });
  for (const std::vector<double>& race : options_.earlier_races) model_->add_noise(race);
  best_combination_ = none();
  update();
}

// Switches that shape the plan by their common plan, the others as if independent.
double Search::predicted(const Combination& combination) const {
  Setting plan;
  double sum = 0;
  for (const int value : combination) {
    if (value == kNoValue) continue;
    const Candidate& c = entries_[static_cast<size_t>(value)].candidate;
    if (c.shapes_plan && options_.plan_gain)
      plan = combine(plan, c.values);
    else
      sum += c.unpredicted && c.late ? kLateGain : c.predicted_log();
  }
  return plan.empty() ? sum : sum + std::log(std::max(0.1, 1 + options_.plan_gain(plan)));
}

// What a switch must bring to be kept.
double Search::price(const Combination& combination) const {
  double sum = 0;
  for (const int value : combination) {
    if (value == kNoValue) continue;
    const bool free = entries_[static_cast<size_t>(value)].candidate.effect <= config::Effect::Numerics;
    sum += std::log1p(free ? options_.least_gain / 2 : options_.least_gain);
  }
  return sum;
}

double Search::value(const Combination& combination) {
  const auto [known, added] = values_.try_emplace(combination, 0.0);
  if (added) known->second = model_->mean(combination) - price(combination);
  return known->second;
}

bool Search::runs(const Combination& combination) const {
  if (ran_combinations_.count(combination) != 0) return true;
  return std::none_of(failed_.begin(), failed_.end(), [&](const Combination& f) { return contains(combination, f); });
}

bool Search::may_join(size_t index) const {
  const Entry& entry = entries_[index];
  return entry.state != EntryState::Pruned && entry.state != EntryState::Failed && !entry.candidate.ledger_only;
}

// Values of one group exclude each other.
Combination Search::with(Combination combination, size_t index) const {
  combination[group_of_[index]] = static_cast<int>(index);
  return combination;
}

Setting Search::setting_of(const Combination& combination) const {
  Setting setting;
  for (const int value : combination)
    if (value != kNoValue) setting = combine(setting, entries_[static_cast<size_t>(value)].candidate.values);
  return setting;
}

// From one combination to the best of those that differ by one value, until none is better.
Combination Search::climb(Combination at) {
  for (;;) {
    Combination next = at;
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (!may_join(i) || suspects_.count(i) != 0) continue;
      Combination other = with(at, i);
      if (at[group_of_[i]] == static_cast<int>(i)) other[group_of_[i]] = kNoValue;
      if (runs(other) && value(other) > value(next) + 1e-9) next = other;
    }
    if (next == at) return at;
    at = std::move(next);
  }
}

// Best and rows as the model sees them now.
void Search::update() {
  values_.clear();
  Combination kept = best_combination_;  // where climbing begins: what was the best before, as far as it runs
  for (size_t g = 0; g < groups_; ++g)
    if (kept[g] != kNoValue &&
        (!may_join(static_cast<size_t>(kept[g])) || suspects_.count(static_cast<size_t>(kept[g]))))
      kept[g] = kNoValue;
  const Combination from_none = climb(none()), from_kept = climb(runs(kept) ? kept : none());
  best_combination_ = value(from_none) > value(from_kept) + 1e-9 ? from_none : from_kept;
  best_ = setting_of(best_combination_);
  members_.clear();
  for (const int value : best_combination_)
    if (value != kNoValue) members_.push_back(static_cast<size_t>(value));
  std::sort(members_.begin(), members_.end());
  rows_.clear();
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    Combination rest = best_combination_;
    if (rest[group_of_[i]] == static_cast<int>(i)) rest[group_of_[i]] = kNoValue;
    // What is not run is not asked for its plan in every company.
    const bool apart = entry.candidate.ledger_only || entry.state == EntryState::Pruned;
    const Combination base = apart ? none() : rest;
    rows_.push_back({model_->view({none(), with(none(), i)}), model_->view({base, with(base, i)})});
    const Row& row = rows_.back();
    entry.against_reference = estimate(row.alone, entry.blocks);
    entry.in_best = estimate(row.in_best, entry.blocks);
    if (entry.blocks == 0 || entry.state == EntryState::Failed) continue;
    entry.alone = entry.against_reference.now;
    entry.state = entry.alone->ratio > 1 + options_.least_gain / 2 ? EntryState::Better : EntryState::NotBetter;
  }
}

SwitchEstimate Search::estimate(const SpeedModel::View& view, int blocks) const {
  const double freedom = model_->noise().freedom;
  const double quantile = measure::student_quantile(0.975, static_cast<int>(std::min(200.0, freedom)));
  SwitchEstimate out{as_ratio(view.now, quantile, blocks), {}, 1};
  Belief alone = SpeedModel::from_blocks(view);
  if (blocks == 0 || !(alone.deviation < 1)) return out;
  out.blocks = as_ratio(alone, quantile, blocks);
  alone.deviation *= std::sqrt(freedom / (freedom - 2));  // what the noise is, is itself only estimated
  out.chance = chance_of_nothing(alone);
  return out;
}

// The blocks do not say yet whether it gains, loses or does nothing.
bool Search::open(const Entry& entry, const SwitchEstimate& estimate) const {
  if (entry.blocks < kBlocksOfAClaim) return true;
  return estimate.chance > kShown && measure::judge(estimate.now) != measure::Verdict::NoEffect;
}

std::vector<Search::Option> Search::options() const {
  std::vector<Option> all;
  const Combination reference = none();
  const auto add = [&](const Combination& a, const Combination& b, const std::string& reason) {
    if (a == b || !runs(a) || !runs(b)) return;
    if (std::none_of(all.begin(), all.end(), [&](const Option& o) { return o.contrast.a == a && o.contrast.b == b; }))
      all.push_back({{a, b}, reason});
  };
  add(reference, best_combination_, "the best against the reference");
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const std::string& name = entry.candidate.name;
    if (entry.state == EntryState::Pruned || entry.state == EntryState::Failed) continue;
    add(reference, with(reference, i), "alone: " + name);
    if (entry.candidate.ledger_only || suspects_.count(i) != 0) continue;
    Combination other = with(best_combination_, i);
    if (other != best_combination_) {
      add(best_combination_, other, "on top of the best: " + name);
    } else {
      other[group_of_[i]] = kNoValue;
      add(best_combination_, other, "taken out of the best: " + name);
    }
  }
  return all;
}

// What may be chosen in the end, against the reference.
std::vector<SpeedModel::View> Search::alternatives() const {
  std::set<Combination> all = {none(), best_combination_};
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!may_join(i)) continue;
    all.insert(with(none(), i));
    if (suspects_.count(i) != 0) continue;
    Combination other = with(best_combination_, i);
    if (other == best_combination_) other[group_of_[i]] = kNoValue;
    all.insert(std::move(other));
  }
  std::vector<SpeedModel::View> views;
  for (const Combination& combination : all)
    if (runs(combination)) views.push_back(model_->view({none(), combination}));
  return views;
}

// How much narrower the rows that are open would get: of the parts of the best and of what may gain, or of all.
double Search::ledger_gain(const SpeedModel::View& option, double scale) const {
  double sum = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.state == EntryState::Pruned || entry.state == EntryState::Failed) continue;
    const bool member = best_combination_[group_of_[i]] == static_cast<int>(i);
    const auto add = [&](const SpeedModel::View& view, const SwitchEstimate& estimate) {
      const Belief& now = view.now;
      const bool gains = member || now.mean + kOneSided * now.deviation > std::log1p(options_.least_gain);
      if (!open(entry, estimate) || !(gains || options_.full_ledger)) return;
      const double slope = model_->covariance(view, option) * scale;
      sum += now.deviation - std::sqrt(std::max(0.0, now.deviation * now.deviation - slope * slope));
    };
    add(rows_[i].alone, entry.against_reference);
    if (member) add(rows_[i].in_best, entry.in_best);
  }
  return sum;
}

// Parts of the best that no block has seen and this one would.
int Search::unseen(const Contrast& contrast) const {
  int count = 0;
  for (size_t g = 0; g < groups_; ++g) {
    const int value = best_combination_[g];
    if (value == kNoValue || entries_[static_cast<size_t>(value)].blocks > 0) continue;
    count += (contrast.a[g] == value) != (contrast.b[g] == value);
  }
  return count;
}

double Search::seconds_of(const Contrast& contrast, int blocks) const {
  double starts = 0;
  for (const Combination* const side : {&contrast.a, &contrast.b})
    starts += std::find(recent_.begin(), recent_.end(), *side) == recent_.end();
  const double block = timed_blocks_ > 0 ? block_seconds_ / timed_blocks_ : 1;
  const double start = timed_starts_ > 0 ? std::max(0.0, start_seconds_ / timed_starts_) : block;
  return blocks * block + starts * start;
}

// What blocks and the starting of trials took, from how time went on.
void Search::see_seconds(double spent_seconds) {
  if (!asked_) return;
  const double took = spent_seconds - asked_seconds_;
  if (asked_starts_ == 0 || timed_blocks_ == 0) {
    block_seconds_ += asked_starts_ == 0 ? took : took / (1 + asked_starts_);
    ++timed_blocks_;
  } else {
    start_seconds_ += took - block_seconds_ / timed_blocks_;
    timed_starts_ += asked_starts_;
  }
}

std::optional<Pairing> Search::next(double spent_seconds) {
  see_seconds(spent_seconds);
  asked_.reset();
  if (spent_seconds >= options_.budget_seconds) {
    out_of_budget_ = true;
    return std::nullopt;
  }
  const std::vector<SpeedModel::View> choices = alternatives();
  std::vector<double> means;
  for (const SpeedModel::View& choice : choices) means.push_back(choice.now.mean - price(choice.contrast.b));
  double most = 0;
  for (Option& option : options()) {
    const SpeedModel::View view = model_->view(option.contrast);
    std::vector<Prospect> prospects;
    for (size_t i = 0; i < choices.size(); ++i) prospects.push_back({means[i], model_->covariance(choices[i], view)});
    for (const int blocks : kLookAhead) {
      const double scale =
          1 / std::sqrt(view.now.deviation * view.now.deviation + model_->noise_of(option.contrast, blocks));
      std::vector<Prospect> moved = prospects;
      for (Prospect& prospect : moved) prospect.slope *= scale;
      const double gain = expected_gain(std::move(moved)) + kLedgerWeight * ledger_gain(view, scale) +
                          kUnseen * unseen(option.contrast);
      const double rate = gain / seconds_of(option.contrast, blocks);
      if (gain < kWorthABlock * (options_.full_ledger ? 0.1 : 1) || rate <= most) continue;
      most = rate;
      asked_ = option;
    }
  }
  if (!asked_) return std::nullopt;
  asked_seconds_ = spent_seconds;
  asked_starts_ = 0;
  for (const Combination& side : {asked_->contrast.a, asked_->contrast.b}) {
    asked_starts_ += std::find(recent_.begin(), recent_.end(), side) == recent_.end();
    recent_.remove(side);
    recent_.push_front(side);
  }
  while (recent_.size() > kAlive) recent_.pop_back();
  return Pairing{setting_of(asked_->contrast.a), setting_of(asked_->contrast.b), asked_->reason,
                 model_->blocks_of(asked_->contrast)};
}

void Search::report(std::optional<double> a_seconds, std::optional<double> b_seconds, const std::string& failure) {
  REDLINE_CHECK(asked_.has_value(), "a result belongs to a trial that was asked for");
  const Contrast& contrast = asked_->contrast;
  if (a_seconds && b_seconds) {
    ran_combinations_.insert({contrast.a, contrast.b});
    for (size_t g = 0; g < groups_; ++g) {
      for (const int value : {contrast.a[g], contrast.b[g]}) {
        if (value == kNoValue) continue;
        const auto index = static_cast<size_t>(value);
        ran_.insert(index), suspects_.erase(index);
        entries_[index].blocks += contrast.a[g] != contrast.b[g];
      }
    }
    model_->add(contrast, std::log(*a_seconds / *b_seconds));
    return update();
  }
  // Of a switch that has run before, only this company is known to fail.
  const Combination& culprit = b_seconds ? contrast.a : contrast.b;
  const Combination& other = b_seconds ? contrast.b : contrast.a;
  std::vector<size_t> members, apart;
  for (size_t g = 0; g < groups_; ++g) {
    if (culprit[g] == kNoValue) continue;
    members.push_back(static_cast<size_t>(culprit[g]));
    if (other[g] != culprit[g]) apart.push_back(members.back());
  }
  failed_.insert(culprit);
  for (size_t g = 0; g < groups_; ++g)
    if (culprit[g] == kNoValue && other[g] != kNoValue)
      entries_[static_cast<size_t>(other[g])].note = "the rest of the best does not run without it: " + failure;
  for (const size_t i : apart) {
    const bool ran = ran_.count(i) != 0;
    entries_[i].note = (members.size() > 1 ? "with the best it fails: " : ran ? "alone it fails: " : "") + failure;
    if (ran) continue;
    if (members.size() == 1)
      entries_[i].state = EntryState::Failed;
    else
      suspects_.insert(i);
  }
  update();
}

void Search::fail(const std::string& setting, const std::string& why) {
  for (Entry& entry : entries_) {
    if (entry.candidate.values.empty() || setting_text(entry.candidate.values) != setting) continue;
    entry.state = EntryState::Failed;
    entry.note = why;
  }
  update();
}

double Search::untested_gain() const {
  double most = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const Candidate& c = entry.candidate;
    if (c.ledger_only || entry.state == EntryState::Failed) continue;
    if (entry.state == EntryState::Pruned && !c.over_budget) continue;
    if (best_combination_[group_of_[i]] == static_cast<int>(i)) continue;
    const SpeedModel::View view = model_->view({best_combination_, with(best_combination_, i)});
    const double upper = view.now.mean + kOneSided * view.now.deviation;
    most = std::max(most, std::min(std::expm1(upper), c.ceiling));
  }
  return most;
}

std::vector<std::string> Search::unknown() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_)
    if (entry.candidate.unpredicted && !entry.candidate.late && entry.blocks == 0 && entry.state == EntryState::Untried)
      names.push_back(entry.candidate.field);
  return names;
}

}  // namespace redline::tune
