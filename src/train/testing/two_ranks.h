// Ranks as threads of one process, joined as processes are: for tests of what they do together.
#pragma once

#include <functional>
#include <vector>

#include "train/ranks/rank_group.h"
#include "train/ranks/rank_watch.h"

namespace redline::train::testing {

struct ThreadRank {
  RankGroup& group;
  RankWatch& watch;
  int rank() const { return group.rank(); }
};

// Runs `body` once per rank; rethrows what the first of them threw.
void run_as_ranks(int world, const std::function<void(ThreadRank&)>& body);

}  // namespace redline::train::testing
