// The ledger from what a search believes. Pure.
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

}  // namespace redline::tune
