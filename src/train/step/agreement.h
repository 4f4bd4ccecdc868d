// What the ranks of a job must decide together about a step. Alone there is nobody to ask; over ranks each call is one
// small collective, so every rank makes the same calls in the same order.
#pragma once

#include <torch/torch.h>

#include "train/step/step_verdict.h"

namespace redline::train {

class Agreement {
 public:
  virtual ~Agreement() = default;
  // Whether others wait for what this rank adds: then pieces without weight or samples run too.
  virtual bool alone() const = 0;
  // The weight that a step's gradients are relative to, from that of the first piece; 0: ask again with the next piece
  // (never said to several ranks, whose later pieces differ in number).
  virtual double reference_weight(double weight, int64_t expected_pieces) = 0;
  // The same where reading a number would wait for the device.
  virtual torch::Tensor reference_weight(const torch::Tensor& weight, int64_t expected_pieces) = 0;
  // Makes the decisions and sums of the verdict those of all ranks. Statistics stay each rank's own.
  virtual void agree(StepVerdict& verdict) = 0;
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
