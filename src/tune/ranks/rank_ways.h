// Which switches of several ranks there are on one machine: ranks x threads, the size of buckets, what gradients are
// sent as. Pure.
#pragma once

#include <string>
#include <vector>

#include "tune/search/candidates.h"

namespace redline::tune {

// The job as it was asked for.
struct RankJob {
  int ranks = 1, threads = 1;
  double bucket_cap_mb = 25;
  std::string compression = "none";
  double gradient_mb = 0;  // of the model, in MiB
};

// Every other number of ranks in `asked`, the cores shared out evenly, BatchNorm over all of them: what one process
// computes, but for rounding.
std::vector<Candidate> ways_to_divide(const RankJob& job, const std::vector<int>& asked, int cores);
// For ranks that send gradients; `now`: the values that ranks x threads came to. What nobody allowed says so.
std::vector<Candidate> ways_to_send(const RankJob& job, const Setting& now, const Allow& allow);

}  // namespace redline::tune
