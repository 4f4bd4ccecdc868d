// The ledger from what a search tried. Pure.
#pragma once

#include <span>

#include "measure/ledger.h"
#include "task/guide_claim.h"
#include "tune/search/search.h"

namespace redline::tune {

// `members` of the search's entries are what was certified and confirmed; it may be less than the search's own best.
// `claims`: what the guides of the job's task promise.
measure::Ledger ledger_of(const Search& search, std::span<const task::GuideClaim> claims,
                          std::span<const size_t> members);

// What a fresh interleaved run should find, from the confirming blocks: their interval, widened for the noise of that
// other run, at least 1.5 % to either side, and for a machine that is not always equally fast. `reference_seconds` is
// the reference in every block it ran in: where its neighbours slow the machine, they slow two settings seldom alike.
// `earlier`: the same two in a race of the search; what lies between its ratio and the confirmed one may come again.
measure::Interval promised_interval(const measure::RatioEstimate& confirmed, std::span<const double> reference_seconds,
                                    const std::optional<measure::RatioEstimate>& earlier = {});

}  // namespace redline::tune
