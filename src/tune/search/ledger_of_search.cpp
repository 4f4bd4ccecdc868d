#include "tune/search/ledger_of_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "measure/statistics.h"

namespace redline::tune {

using measure::LedgerVerdict;

namespace {

// How much of the machine's own drift a ratio shows. Seen on a shared machine whose reference ran at 3.3 to 5.8 ms a
// sample: the same ratio went from 1.42 to 1.86, half of it on the log scale (bench/results, tuner_drift).
constexpr double kUnlike = 0.5;

// A 95 % interval that was looked at after every block errs more often than 5 %; a gain is claimed only where the race,
// which counts its looks, found one, or where the interval is clear of 1 by more than what is worth keeping.
LedgerVerdict verdict_of(const Entry& entry) {
  const LedgerVerdict plain = measure::ledger_verdict(*entry.alone);
  if (plain == LedgerVerdict::Faster && entry.state != EntryState::Better)
    return entry.alone->ratio > 1.02 ? LedgerVerdict::TooNoisy : LedgerVerdict::NoEffect;
  return plain;
}

using Claims = std::span<const task::GuideClaim>;

// Empty when no guide says anything about the switch.
std::string claim_of(Claims claims, const std::string& field) {
  const auto found = std::ranges::find(claims, field, &task::GuideClaim::field);
  return found != claims.end() ? found->text() : std::string();
}

measure::LedgerEntry entry_of(const Entry& entry, Claims claims, bool in_best) {
  const Candidate& c = entry.candidate;
  measure::LedgerEntry out;
  out.field = c.field;
  out.from = c.from;
  out.to = c.to;
  out.effect = config::effect_name(c.effect);
  if (!c.late) out.claim = claim_of(claims, c.field);  // no guide promises a gain for the way back
  out.add_one_in = entry.alone;
  out.reason = entry.note;
  out.in_best = in_best;
  if (!c.not_measurable && !c.ledger_only && !c.unpredicted) out.predicted = 1 + c.predicted_gain;
  if (entry.removed) {
    const auto& e = *entry.removed;
    out.leave_one_out = measure::RatioEstimate{1 / e.ratio, {1 / e.interval.high, 1 / e.interval.low}, e.blocks};
  }
  if (c.not_measurable) {
    out.verdict = LedgerVerdict::NotMeasurable;
  } else if (entry.alone) {
    out.verdict = verdict_of(entry);
  } else if (entry.state == EntryState::Failed || (entry.failed_on_top && !in_best)) {
    out.verdict = LedgerVerdict::Failed;
  } else if (entry.state == EntryState::Pruned && c.not_tried.empty()) {
    out.verdict = LedgerVerdict::NoEffect;
    out.reason = fmt::format("it can gain at most {:+.1f} %", 100 * c.ceiling);
  } else if (entry.on_top || entry.removed || in_best) {
    out.verdict = LedgerVerdict::InCompany;
    if (entry.on_top)
      out.reason =
          fmt::format("on top of the first guess {:+.0f} % ({:+.0f} to {:+.0f})", 100 * (entry.on_top->ratio - 1),
                      100 * (entry.on_top->interval.low - 1), 100 * (entry.on_top->interval.high - 1));
    else if (!entry.removed && entry.note.empty())
      out.reason = "part of the best";
  } else {
    out.verdict = LedgerVerdict::NotTried;
    if (entry.state == EntryState::Untried) out.reason = "it is expected to lose; --full races it all the same";
    if (entry.state == EntryState::OutOfBudget && c.not_tried.empty()) out.reason = "the budget ended before its turn";
  }
  return out;
}

}  // namespace

measure::Ledger ledger_of(const Search& search, Claims claims, std::span<const size_t> members) {
  measure::Ledger ledger;
  for (size_t i = 0; i < search.entries().size(); ++i)
    ledger.entries.push_back(
        entry_of(search.entries()[i], claims, std::find(members.begin(), members.end(), i) != members.end()));
  // What was raced alone by its gain, then what was raced in company, the kept ones first.
  const auto rank = [](const measure::LedgerEntry& e) {
    if (e.add_one_in) return e.add_one_in->ratio;
    if (e.verdict == LedgerVerdict::InCompany) return e.in_best ? -1.0 : -2.0;
    return e.verdict == LedgerVerdict::NotMeasurable ? -4.0 : -3.0;
  };
  std::stable_sort(ledger.entries.begin(), ledger.entries.end(),
                   [&](const auto& a, const auto& b) { return rank(a) > rank(b); });
  if (search.unknown().empty()) ledger.bound_left = 1 + search.untested_gain();
  return ledger;
}

measure::Interval promised_interval(const measure::RatioEstimate& confirmed, std::span<const double> reference_seconds,
                                    const std::optional<measure::RatioEstimate>& earlier) {
  std::vector<double> logs;
  for (const double seconds : reference_seconds) logs.push_back(std::log(seconds));
  // Not a robust spread: the minutes in which the machine was slow are what a fresh run may meet.
  const double mean = logs.empty() ? 0 : measure::mean(logs);
  double squares = 0;
  for (const double log : logs) squares += (log - mean) * (log - mean);
  const double spread = logs.size() < 3 ? 0 : std::sqrt(squares / static_cast<double>(logs.size() - 1));
  double middle = std::log(confirmed.ratio), moved = 0;
  const double low = middle - std::log(std::max(1e-9, confirmed.interval.low));
  const double high = std::log(confirmed.interval.high) - middle;
  if (earlier && earlier->blocks > 0) {
    const double all = confirmed.blocks + earlier->blocks;
    moved = std::log(earlier->ratio) - middle;
    middle += moved * earlier->blocks / all;
  }
  const double drift = std::hypot(1.96 * kUnlike * spread, moved);
  const auto wide = [&](double half) { return std::max(0.015, std::hypot(half * std::sqrt(2.0), drift)); };
  return {std::exp(middle - wide(low)), std::exp(middle + wide(high))};
}

}  // namespace redline::tune
