// Is a changed training worse than the reference? One-sided non-inferiority over pairs of runs that share seed, initial
// weights and held-out samples, looked at after 3, 5, 8 and 12 pairs with one error rate for all looks. Pure.
//
// The margin is a share of what the reference itself learned, so it needs no unit and may be asked of any loss, also of
// one that is negative. It is tested as a contrast within each pair (difference less the share of that pair's
// progress): that the margin is itself measured is then part of the test, not ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "measure/statistics.h"

namespace redline::measure {

// Held-out losses of one pair of runs: before the first step (the same weights), and both at the judged point.
struct PairedLosses {
  double start = 0, reference = 0, candidate = 0;
  double difference() const { return candidate - reference; }  // above 0: the candidate is worse
  double progress() const { return start - reference; }
};

struct PairedDesign {
  double margin = 0.05;      // share of the reference's progress that may be lost
  double error_rate = 0.05;  // of a false "not worse", over all looks
  int most_pairs = 12;       // one of 3, 5, 8, 12
  // A change that may touch nothing but numbers or order must not learn more either: it is shown to be within the
  // margin on both sides, and better by more than the margin says that something else changed.
  bool must_be_alike = false;
};

enum class PairedVerdict { NotWorse, Worse, Better, NotShown, Undecided };  // Undecided: the next look may tell
const char* paired_verdict_name(PairedVerdict verdict);                     // "not worse", ...

struct PairedJudgement {
  PairedVerdict verdict = PairedVerdict::Undecided;
  int pairs = 0;
  double p = 1;             // of "worse by the margin or more": small speaks for not worse
  double p_worse = 1;       // of "within the margin"
  double level = 0;         // that p is held against at this look
  double progress = 0;      // of the reference, mean
  double margin = 0;        // in units of the loss
  double difference = 0;    // mean
  Interval interval;        // of the mean difference, 95 %
  double spread = 0;        // of what is tested, between pairs
  double power = 0;         // of the whole budget, for a change that makes no difference at all, at this spread
  int pairs_needed = 0;     // for 90 % power at this spread
  bool learned = false;     // the reference's progress is beyond chance
  bool not_finite = false;  // the candidate's loss is not a number
};

// The error rate of several candidates that are tried in turn, shared so that all of them together have the whole: each
// has a share of its own, and what one had that was shown goes on to the next (the fallback procedure, Wiens 2003).
class ErrorShares {
 public:
  double share() const;  // of the candidate whose turn it is
  void shown();
  void not_shown();

 private:
  int round_ = 0;
  double carried_ = 0;
};

// How many pairs come before the next look; 0 after the last.
int next_look(int pairs, int most_pairs);
// The largest number of pairs that is a last look and at most `affordable`; 0 where not even the first is.
int most_pairs_within(int affordable);
// What p is held against after so many pairs; 0 between looks.
double level_of_look(const PairedDesign& design, int pairs);

// After a look; between looks and before the first the verdict is Undecided.
PairedJudgement judge_pairs(std::span<const PairedLosses> pairs, const PairedDesign& design);
// Fills in power and pairs_needed.
void add_power(PairedJudgement& judgement, const PairedDesign& design);

}  // namespace redline::measure
