// The compute half of a step: forward and backward of its pieces, gradients summed so that they equal one large batch.
// Writes only gradients; BatchNorm statistics wait in the result until commit.
//
// Each piece's loss averages over its own weight w_i; backward is seeded with scale * w_i / reference, and the whole is
// divided once by scale * sum(w) / reference. The reference keeps the seeds near 1 (fp16 would overflow with raw token
// counts) and is a power of two when there are several pieces, so that the number of pieces does not change how a
// product rounds.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "measure/step_clock.h"
#include "task/task.h"
#include "train/loop/precision_guard.h"

namespace redline::train {

struct StepPass {
  uint64_t seed = 0;
  int64_t step = 0;  // steps made before this one: keys the draws
  Precision precision = Precision::Fp32;
  double loss_scale = 1.0;
  int64_t expected_pieces = 1;
};

struct StepResult {
  double loss = 0.0;     // weighted mean; not finite when something went wrong
  double weight = 0.0;   // sum of weights; 0: nothing to learn from
  double divisor = 1.0;  // gradients are this many times too large
  std::map<std::string, double> metrics;
  int64_t samples = 0, items = 0, padded_items = 0;
  int64_t pieces = 0;
  std::vector<task::BatchNormUpdate> batch_norm;
};

class StepCompute {
 public:
  StepCompute(task::Task& task, torch::Device device, measure::StepClock& clock);

  void begin(const StepPass& pass);
  // Forward and backward of one piece. Throws ConfigError when the loss cannot be learned from (no gradient, wrong
  // shape), and what LibTorch throws (c10::OutOfMemoryError).
  void add(const task::Batch& piece);
  StepResult finish();
  // After an exception: frees what the unfinished pass holds.
  void abandon();

  // Named outputs of the next pass (probe); kept from its first piece.
  void want_outputs(bool on) { want_outputs_ = on; }
  const std::map<std::string, torch::Tensor>& outputs() const { return outputs_; }
  // The piece a test poisoned in this pass, for the diagnosis; empty otherwise.
  const task::Batch& poisoned_piece() const { return poisoned_; }

 private:
  void check_loss(const task::Loss& loss) const;
  void add_on_cpu(const task::Loss& loss);
  void add_on_device(const task::Loss& loss);
  void backward(const torch::Tensor& value, const torch::Tensor& seed);

  task::Task& task_;
  torch::Device device_;
  measure::StepClock& clock_;
  StepPass pass_;
  StepResult result_;
  double reference_ = 0.0;               // CPU
  torch::Tensor loss_sum_, weight_sum_;  // other devices: read once, at the end
  torch::Tensor reference_tensor_;
  std::map<std::string, torch::Tensor> metric_sums_;
  bool want_outputs_ = false;
  std::map<std::string, torch::Tensor> outputs_;
  task::Batch poisoned_;
};

// Running statistics of BatchNorm layers, applied at commit in the order of the pieces.
void apply_batch_norm(const std::vector<task::BatchNormUpdate>& updates);

}  // namespace redline::train
