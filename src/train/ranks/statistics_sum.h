// Sums that BatchNorm layers take over ranks in the middle of a pass (SyncBatchNorm). Keeps in mind which sums a piece
// takes, so that a rank that cannot compute its piece can still take part in those of the others.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "measure/step_clock.h"
#include "task/context.h"
#include "train/ranks/rank_group.h"

namespace redline::train {

class StatisticsSum {
 public:
  StatisticsSum(RankGroup& group, measure::StepClock& clock)
      : group_(group), clock_(clock), counted_(*this, true), silent_(*this, false) {}

  void begin() { in_piece_ = false; }
  // `counts` false: takes part and adds nothing.
  task::Collective* begin_piece(bool counts);
  void end_forward() { forward_sums_ = now_.size(); }
  // What is left of this piece's sums, with zeros; `between`: when those of forward are over. Throws OutOfMemoryError
  // when no piece was ever whole here.
  void keep_company(const std::function<void()>& between);
  // Sums since the last call, and the nanoseconds they took.
  std::pair<int64_t, int64_t> take_counts() { return {std::exchange(sums_, 0), std::exchange(sum_ns_, 0)}; }

 private:
  class Part : public task::Collective {
   public:
    Part(StatisticsSum& owner, bool counts) : owner_(owner), counts_(counts) {}
    int rank() const override { return owner_.group_.rank(); }
    int world_size() const override { return owner_.group_.world(); }
    torch::Tensor all_reduce_sum(const torch::Tensor& value) override { return owner_.add(value, counts_); }

   private:
    StatisticsSum& owner_;
    bool counts_;
  };
  torch::Tensor add(const torch::Tensor& value, bool counts);
  void end_piece();

  RankGroup& group_;
  measure::StepClock& clock_;
  Part counted_, silent_;
  std::vector<int64_t> now_, whole_;  // sizes of the sums of this piece so far, and of a whole one
  size_t forward_sums_ = 0;
  bool in_piece_ = false;
  int64_t sums_ = 0, sum_ns_ = 0;
};

}  // namespace redline::train
