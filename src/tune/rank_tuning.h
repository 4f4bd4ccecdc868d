// The tuner over ranks: trials that are whole processes, since ranks are. Races ranks x threads, the size of buckets
// and what gradients are sent as, in short runs of the job that take turns; proves the winner step by step against the
// measured rounding of the job itself, and by pairs of runs what rounds more than that.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tune/tuner.h"

namespace redline::tune {

struct RankTuneRequest {
  const TuneRequest& tune;
  std::vector<int> ranks{1, 2};
  std::filesystem::path scratch;  // runs go here, one at a time
  // Starts so many ranks of this program with these words and waits for them; returns the exit code.
  std::function<int(int ranks, const std::vector<std::string>& words)> launch;
};

// The card is not kept: its answer is `best` and the ledger. Throws ConfigError when the job itself does not run.
TuneResult tune_ranks(const RankTuneRequest& request);

}  // namespace redline::tune
