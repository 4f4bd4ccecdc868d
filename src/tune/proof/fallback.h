// A winner that was rejected makes room for the next best. Pure.
#pragma once

#include <span>
#include <vector>

#include "tune/search/search.h"

namespace redline::tune {

struct Rejection {
  enum class Reason {
    StepByStep,  // a switch that should have changed nothing but rounding changed more
    Curve,       // one that may change more changed too much
    DoesNotRun,  // out of memory, or another error: larger pieces are the first to blame
  };
  std::vector<size_t> members;  // entries of the winner that was rejected
  Reason reason = Reason::Curve;
};

// The members to prove next; empty when nothing is left. Of those that can be to blame the one with the strongest
// effect goes: another value of its group takes its place once, after that none does. With `last` (no time for another
// round) all that can be to blame go.
std::vector<size_t> next_best(std::span<const Entry> entries, std::span<const Rejection> rejected, bool last);

}  // namespace redline::tune
