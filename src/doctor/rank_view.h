// What the ranks of a run did with their time, side by side: who waited for whom, what the network cost, what would be
// gained without it. From their records. Pure.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "measure/phases.h"
#include "measure/run_record.h"

namespace redline::doctor {

struct RankLine {
  int rank = 0;
  int64_t steps = 0;        // that were divided into phases
  double own_seconds = 0;   // of a step, without waiting for other ranks
  double wait_seconds = 0;  // for them: the reduce phase
  std::array<double, measure::kNumPhases> phase_seconds{};
};

struct RankView {
  std::vector<RankLine> ranks;
  double step_seconds = 0;
  // Of rank 0's gradients on their way; in a step.
  double exposed_seconds = 0, overlapped_seconds = 0;
  double free_network_gain = 0;        // at most: every rank still waits for the slowest
  double equal_ranks_gain = 0;         // on top: no rank slower than their mean
  std::vector<std::string> sentences;  // ceilings, then stragglers that the run named
};

// `ranks`: rank 0's record, then the others'. nullopt for one process, and without steps to compare.
std::optional<RankView> rank_view(std::span<const measure::RunRecord> ranks);

}  // namespace redline::doctor
