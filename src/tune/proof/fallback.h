// In which order parts of a winner are proved, and what comes after one that was rejected. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tune/setting.h"

namespace redline::tune {

// A switch as it stands after the search.
struct Contender {
  Candidate candidate;
  std::optional<double> better;  // how many times faster it is alone, where it was found to be; may replace another
};

struct Rejection {
  enum class Reason {
    StepByStep,  // a switch that should have changed nothing but rounding changed more
    Pairs,       // one that may change more was not shown to be no worse, or takes longer to the loss
    DoesNotRun,  // out of memory, or another error: larger pieces are the first to blame
  };
  std::vector<size_t> members;  // contenders of the winner that was rejected
  Reason reason = Reason::Pairs;
};

// The members in the order in which they are proved, each part on top of those before it: what changes nothing or
// numbers, then the order of the samples, then the optimisation. The less a change does, the closer its runs stay to
// the reference's, and the fewer pairs tell.
std::vector<std::vector<size_t>> parts_by_effect(std::span<const Contender> entries, std::span<const size_t> members);

// Whether all of `part` are in `whole`.
bool within(std::span<const size_t> part, std::span<const size_t> whole);

// The members to prove next; empty when nothing is left. Of those that can be to blame the one with the strongest
// effect goes: another value of its group takes its place once, after that none does. With `last` (no time for another
// round) all that can be to blame go.
std::vector<size_t> next_best(std::span<const Contender> entries, std::span<const Rejection> rejected, bool last);

}  // namespace redline::tune
