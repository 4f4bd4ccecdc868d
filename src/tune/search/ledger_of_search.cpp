// Estimates are prediction and blocks together; what a row claims rests on the blocks alone, and all rows share one
// chance of 5 % to claim what is not there (Holm 1979 over the chances of each, which count every look).
#include "tune/search/ledger_of_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "measure/statistics.h"

namespace redline::tune {

using measure::LedgerVerdict;

namespace {

constexpr double kError = 0.05;  // that any row claims what is not there

using Claims = std::span<const task::GuideClaim>;

// Empty when no guide says anything about the switch.
std::string claim_of(Claims claims, const std::string& field) {
  const auto found = std::ranges::find(claims, field, &task::GuideClaim::field);
  return found != claims.end() ? found->text() : std::string();
}

// The largest chance that still counts as shown.
double shown_below(const Search& search) {
  std::vector<double> chances;
  for (const Entry& entry : search.entries())
    for (const SwitchEstimate* const e : {&entry.against_reference, &entry.in_best})
      if (e->blocks) chances.push_back(e->chance);
  std::sort(chances.begin(), chances.end());
  double shown = 0;
  for (size_t i = 0; i < chances.size(); ++i) {
    if (chances[i] > kError / static_cast<double>(chances.size() - i)) break;
    shown = chances[i];
  }
  return shown;
}

std::string possible(const measure::RatioEstimate& e) {
  return fmt::format("{:+.0f} to {:+.0f} % is still possible", 100 * (e.interval.low - 1), 100 * (e.interval.high - 1));
}

class Rows {
 public:
  Rows(const Search& search, Claims claims) : claims_(claims), shown_(shown_below(search)) {}

  measure::LedgerEntry row(const Entry& entry, bool in_best) const {
    const Candidate& c = entry.candidate;
    measure::LedgerEntry out;
    out.field = c.field;
    out.from = c.from;
    out.to = c.to;
    out.effect = config::effect_name(c.effect);
    if (!c.late) out.claim = claim_of(claims_, c.field);  // no guide promises a gain for the way back
    out.reason = entry.note;
    out.in_best = in_best;
    if (!c.not_measurable && !c.ledger_only && !c.unpredicted) {
      out.predicted = 1 + c.predicted_gain;
      out.predicted_interval = entry.predicted;
    }
    const bool runs = entry.state != EntryState::Pruned && entry.state != EntryState::Failed;
    if (runs && (entry.blocks > 0 || out.predicted)) {
      out.add_one_in = entry.against_reference.now;
      out.measured = entry.against_reference.blocks;
      if (!c.ledger_only) out.leave_one_out = entry.in_best.now;
    }
    judge(entry, out);
    return out;
  }

 private:
  bool shown(const Entry& entry, const SwitchEstimate& e, bool faster) const {
    return entry.blocks >= kBlocksOfAClaim && e.blocks && e.chance <= shown_ && (e.blocks->ratio > 1) == faster &&
           (faster ? e.now.interval.low > 1 : e.now.interval.high < 1);
  }

  void judge(const Entry& entry, measure::LedgerEntry& out) const {
    const Candidate& c = entry.candidate;
    const SwitchEstimate &alone = entry.against_reference, &company = entry.in_best;
    if (c.not_measurable) {
      out.verdict = LedgerVerdict::NotMeasurable;
    } else if (entry.state == EntryState::Failed) {
      out.verdict = LedgerVerdict::Failed;
    } else if (!c.not_tried.empty()) {
      out.verdict = LedgerVerdict::NotTried;
    } else if (entry.state == EntryState::Pruned) {
      out.verdict = LedgerVerdict::NoEffect;
      out.reason = fmt::format("it can gain at most {:+.1f} %", 100 * c.ceiling);
    } else if (entry.blocks == 0) {
      out.verdict = entry.note.empty() ? LedgerVerdict::Undecided : LedgerVerdict::Failed;
      if (entry.note.empty())
        out.reason = out.predicted ? possible({1, entry.predicted, 0}) + ", by its prediction alone"
                                   : "no block was spent on it; --full spends some";
    } else if (shown(entry, alone, true) || shown(entry, company, true)) {
      out.verdict = LedgerVerdict::Faster;
    } else if (shown(entry, alone, false) && !out.in_best) {
      out.verdict = LedgerVerdict::Slower;
    } else if (measure::judge(alone.now) == measure::Verdict::NoEffect) {
      out.verdict = LedgerVerdict::NoEffect;
    } else {
      out.verdict = LedgerVerdict::Undecided;
      if (out.reason.empty()) out.reason = possible(alone.now);
    }
  }

  Claims claims_;
  double shown_;
};

}  // namespace

measure::Ledger ledger_of(const Search& search, Claims claims, std::span<const size_t> members) {
  measure::Ledger ledger;
  const Rows rows(search, claims);
  for (size_t i = 0; i < search.entries().size(); ++i)
    ledger.entries.push_back(
        rows.row(search.entries()[i], std::find(members.begin(), members.end(), i) != members.end()));
  // The kept ones first, then by what they are believed to gain alone; what nothing is known of at the end.
  const auto rank = [](const measure::LedgerEntry& e) {
    if (e.add_one_in) return (e.in_best ? 1e3 : 0) + e.add_one_in->ratio;
    return e.verdict == LedgerVerdict::NotMeasurable ? -2.0 : -1.0;
  };
  std::stable_sort(ledger.entries.begin(), ledger.entries.end(),
                   [&](const auto& a, const auto& b) { return rank(a) > rank(b); });
  if (search.unknown().empty()) ledger.bound_left = 1 + search.untested_gain();
  return ledger;
}

}  // namespace redline::tune
