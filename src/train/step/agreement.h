// What the ranks of a job must decide together. Alone there is nobody to ask; over ranks each call that says so is one
// small collective, so every rank makes the same calls in the same order.
#pragma once

#include <torch/torch.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "measure/step_clock.h"
#include "task/task.h"
#include "train/step/gradient_sync.h"
#include "train/step/step_verdict.h"

namespace redline::train {

class Agreement {
 public:
  virtual ~Agreement() = default;
  // Whether others wait for what this rank adds: then pieces without weight or samples run too.
  virtual bool alone() const = 0;
  // The weight that a step's gradients are relative to, from that of the first piece; 0: ask again with the next piece
  // (never said to several ranks, whose later pieces differ in number). A collective.
  virtual double reference_weight(double weight, int64_t expected_pieces) = 0;
  // The same where reading a number would wait for the device.
  virtual torch::Tensor reference_weight(const torch::Tensor& weight, int64_t expected_pieces) = 0;
  // Makes the decisions and sums of the verdict those of all ranks, and statistics where they are not already. A
  // collective.
  virtual void agree(StepVerdict& verdict) = 0;

  // Whether this rank's last commit left something that is not finite; the next verdict carries it to all
  // (damaged_before), which spares an exchange. Not for one process.
  virtual void tell_damage(bool damaged) { static_cast<void>(damaged); }

  // What follows is the answer of one process unless overridden.

  // How the ranks' gradients become one; null: there is one.
  virtual std::unique_ptr<GradientSync> sync_gradients(task::Task& task, const measure::StepClock& clock);
  // Pieces that all ranks cut a micro-batch into, where they meet in each; `limited`: memory cuts them. A collective
  // only then.
  virtual int64_t pieces(int64_t mine, bool limited);
  // Pads a micro-batch to what the longest row of all ranks needs, where layers look across ranks: else padding would
  // differ from that of the whole batch, and their statistics with it. A collective only there.
  virtual void same_shape(task::Batch& batch) { static_cast<void>(batch); }
  // The signal that asks for a stop, 0: none. Alone it is asked at any time; over ranks it is what agree() and sum()
  // last found, so that all stop after the same step.
  virtual int stop_signal() const;
  virtual int64_t now_ns() const;  // of a clock that all ranks read alike
  // Collectives.
  virtual bool any(bool mine) { return mine; }
  virtual std::vector<double> sum(const std::vector<double>& mine) { return mine; }
  virtual double of_first(double mine) { return mine; }  // rank 0's
  // Rows of all ranks, in their order; each gives as many tensors, or none.
  virtual std::vector<torch::Tensor> join_rows(const std::vector<torch::Tensor>& mine) { return mine; }
  virtual std::map<std::string, double> of_first(const std::map<std::string, double>& mine) { return mine; }
  virtual void wait_for_all() {}
};

// One process. The reference keeps the seeds of backward near 1 (fp16 would overflow with raw token counts) and is a
// power of two when there are several pieces, so that the number of pieces does not change how a product rounds.
class Alone : public Agreement {
 public:
  bool alone() const override { return true; }
  double reference_weight(double weight, int64_t expected_pieces) override;
  torch::Tensor reference_weight(const torch::Tensor& weight, int64_t expected_pieces) override;
  void agree(StepVerdict&) override {}
};

}  // namespace redline::train
