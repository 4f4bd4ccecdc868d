// Levels of the looks: chosen by simulation of 10^6 sequences of independent normal differences, for a total of at most
// 5.0 % at each last look (4.9 to 5.0 %; the unit test repeats it smaller). Later looks get more, since a clear case
// needs little (O'Brien and Fleming 1979). At a lower error rate looks overlap less (with all
// levels at a fiftieth the total is a fiftieth and a fifth of it); the shares of the rounds have room for that.
#include "measure/paired_test.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "measure/student.h"

namespace redline::measure {

namespace {

struct Look {
  int pairs;
  double level;  // at an error rate of 5 %
};
struct Looks {
  int last;
  std::vector<Look> looks;
};

const std::vector<Looks>& designs() {
  static const std::vector<Looks> all = {
      {3, {{3, 0.05}}},
      {5, {{3, 0.012}, {5, 0.042}}},
      {8, {{3, 0.008}, {5, 0.014}, {8, 0.036}}},
      {12, {{3, 0.005}, {5, 0.01}, {8, 0.02}, {12, 0.03}}},
  };
  return all;
}

const Looks& design_of(int most_pairs) {
  const auto found = std::ranges::find(designs(), most_pairs, &Looks::last);
  REDLINE_CHECK(found != designs().end(), "a paired design ends after 3, 5, 8 or 12 pairs");
  return *found;
}

struct Moments {
  double mean = 0, deviation = 0;
};
Moments moments(const std::vector<double>& values) {
  Moments m{mean(values), 0};
  for (const double value : values) m.deviation += (value - m.mean) * (value - m.mean);
  m.deviation = values.size() < 2 ? 0 : std::sqrt(m.deviation / static_cast<double>(values.size() - 1));
  return m;
}

// P of a mean as far below 0 as seen, were it 0.
double p_below_zero(const Moments& m, size_t n) {
  if (m.deviation == 0) return m.mean < 0 ? 0 : 1;
  return student_cdf(m.mean / (m.deviation / std::sqrt(static_cast<double>(n))), static_cast<int>(n) - 1);
}

constexpr double kHopeless = 0.02;  // chance of "not worse" at the last look, at best, below which it ends
constexpr double kAtBest = 0.9;     // few pairs tell the mean badly: how far it is given the benefit of the doubt
constexpr double kLikely = 0.5;     // chance of "worse" above which the further pairs are worth their time
constexpr double kLearnedLevel = 0.05;

}  // namespace

const char* paired_verdict_name(PairedVerdict verdict) {
  switch (verdict) {
    case PairedVerdict::NotWorse:
      return "not worse";
    case PairedVerdict::Worse:
      return "worse";
    case PairedVerdict::Better:
      return "better than the margin";
    case PairedVerdict::NotShown:
      return "not shown";
    case PairedVerdict::Undecided:
      return "undecided";
  }
  return "?";
}

int next_look(int pairs, int most_pairs) {
  for (const Look& look : design_of(most_pairs).looks)
    if (look.pairs > pairs) return look.pairs - pairs;
  return 0;
}

int most_pairs_within(int affordable) {
  int most = 0;
  for (const Looks& one : designs())
    if (one.last <= affordable) most = one.last;
  return most;
}

double level_of_look(const PairedDesign& design, int pairs) {
  for (const Look& look : design_of(design.most_pairs).looks)
    if (look.pairs == pairs) return design.error_rate / 0.05 * look.level;
  return 0;
}

double ErrorShares::share() const {
  constexpr double kShares[] = {0.5, 0.22, 0.12, 0.08};
  return carried_ + kShares[std::min<int>(round_, static_cast<int>(std::size(kShares)) - 1)];
}

void ErrorShares::shown() {
  carried_ = share();
  ++round_;
}

void ErrorShares::not_shown() {
  carried_ = 0;
  ++round_;
}

PairedJudgement judge_pairs(std::span<const PairedLosses> pairs, const PairedDesign& design) {
  PairedJudgement out;
  out.pairs = static_cast<int>(pairs.size());
  if (std::any_of(pairs.begin(), pairs.end(), [](const PairedLosses& p) { return !std::isfinite(p.candidate); })) {
    out.not_finite = true;
    out.verdict = PairedVerdict::Worse;
    return out;
  }
  if (pairs.size() < 2) return out;
  std::vector<double> differences, progress, beyond, better;
  for (const PairedLosses& p : pairs) {
    differences.push_back(p.difference());
    progress.push_back(p.progress());
    beyond.push_back(p.difference() - design.margin * p.progress());
    better.push_back(p.difference() + design.margin * p.progress());
  }
  const size_t n = pairs.size();
  const Moments d = moments(differences), learned = moments(progress), x = moments(beyond);
  out.progress = learned.mean;
  out.margin = design.margin * learned.mean;
  out.difference = d.mean;
  const double half =
      student_quantile(0.975, static_cast<int>(n) - 1) * d.deviation / std::sqrt(static_cast<double>(n));
  out.interval = {d.mean - half, d.mean + half};
  out.p = p_below_zero(x, n);
  out.p_worse = x.deviation == 0 ? (x.mean > 0 ? 0 : 1) : 1 - out.p;
  Moments mirrored = learned;
  mirrored.mean = -mirrored.mean;
  out.learned = std::isfinite(learned.mean) && p_below_zero(mirrored, n) < kLearnedLevel;
  const double last_level = level_of_look(design, design.most_pairs);
  out.spread = x.deviation;
  out.level = level_of_look(design, out.pairs);
  if (out.level <= 0) return out;
  const bool last = next_look(out.pairs, design.most_pairs) == 0;
  if (!out.learned) {
    if (last) out.verdict = PairedVerdict::NotShown;
    return out;
  }
  // What must be alike has to be shown within the margin on both sides (two one-sided tests): an early look may tell
  // that it is not worse long before it tells that it is better.
  const Moments y = moments(better);
  const double p_better = p_below_zero(y, n), p_not_better = y.deviation == 0 ? (y.mean > 0 ? 0 : 1) : 1 - p_better;
  if (design.must_be_alike && p_better < out.level) {
    out.verdict = PairedVerdict::Better;
  } else if (out.p < out.level && (!design.must_be_alike || p_not_better < out.level)) {
    out.verdict = PairedVerdict::NotWorse;
  } else if (out.p_worse < out.level) {
    out.verdict = PairedVerdict::Worse;
  } else if (last) {
    out.verdict = PairedVerdict::NotShown;
  } else {
    const double worse = x.deviation > 0 ? x.mean / x.deviation : 0;
    const double better_by = design.must_be_alike && y.deviation > 0 ? -y.mean / y.deviation : -1e9;
    const double outside = std::max(worse, better_by);  // of the margin's nearer end
    const double doubt = student_quantile(kAtBest, static_cast<int>(n) - 1) / std::sqrt(static_cast<double>(n));
    const bool hopeless = one_sided_power(design.most_pairs, doubt - outside, last_level) < kHopeless;
    // Giving up early can only err towards not keeping; where "worse" or "better" is near, it is worth saying.
    if (hopeless && one_sided_power(design.most_pairs, outside, last_level) < kLikely)
      out.verdict = PairedVerdict::NotShown;
  }
  return out;
}

void add_power(PairedJudgement& judgement, const PairedDesign& design) {
  const double effect = judgement.spread > 0   ? std::min(30.0, judgement.margin / judgement.spread)
                        : judgement.margin > 0 ? 30.0
                                               : 0.0;
  const double level = level_of_look(design, design.most_pairs);
  judgement.power = one_sided_power(design.most_pairs, effect, level);
  judgement.pairs_needed = values_needed(effect, level, design.must_be_alike ? 0.95 : 0.9);
  // Both tests must succeed: at worst their failures never coincide.
  if (design.must_be_alike) judgement.power = std::max(0.0, 2 * judgement.power - 1);
}

}  // namespace redline::measure
