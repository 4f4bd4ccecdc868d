// The ranks of a run, as run_job sees them: joined at the start, told where rank 0 writes and from what it begins,
// equal before the first step, and told apart when one ends.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "measure/run_record.h"
#include "train/job.h"
#include "train/launch.h"
#include "train/ranks/rank_agreement.h"
#include "train/ranks/rank_group.h"
#include "train/ranks/rank_watch.h"
#include "train/training_run.h"

namespace redline::train {

class Trainer;

class Ranks {
 public:
  // Waits for all. Throws ConfigError for a mixed-up job, PeerLostError when one does not come.
  Ranks(const Launch& launch, const Job& job);

  bool first() const { return group_->rank() == 0; }
  RankAgreement& agreement() { return *agreement_; }
  RankWatch& watch() { return *watch_; }

  struct Beginning {
    std::string directory, checkpoint;  // empty: from the start
  };
  // Rank 0 has found the job sound and says where it writes; the others hear it. Collectives.
  void announce(const Beginning& begin);
  Beginning hear();
  // Weights and buffers are rank 0's on all; throws ConfigError when the states differ in more than that.
  void make_equal(const Trainer& trainer);
  // The loop has ended on all ranks.
  void done();

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::unique_ptr<RankWatch> watch_;
  std::unique_ptr<RankGroup> group_;
  std::unique_ptr<RankAgreement> agreement_;
};

// For the life of a loop: equal at its start, its clock watched, a loss in its record. Nothing for one process.
class RanksInLoop {
 public:
  RanksInLoop(Ranks* ranks, const Trainer& trainer, measure::RunWriter& writer);
  ~RanksInLoop();
  RanksInLoop(const RanksInLoop&) = delete;
  RanksInLoop& operator=(const RanksInLoop&) = delete;

 private:
  Ranks* ranks_;
};

inline Agreement* agreement_of(Ranks* ranks) { return ranks != nullptr ? &ranks->agreement() : nullptr; }

// Joins, runs, and tells the others how this rank ended. A lost peer ends the process here (code 8): connections to a
// dead rank cannot be put away in bounded time.
RunSummary run_with_ranks(Job& job, const Launch& launch, const std::function<RunSummary(Ranks&)>& run);

// A rank other than 0: the same loop without a store. Its record is RUN/ranks/N.
RunSummary follow_job(Job& job, Ranks& ranks);

}  // namespace redline::train
