// Forward and backward of each piece as the task's own operators, gradients summed so that they equal one large batch.
// Writes only gradients; BatchNorm statistics wait in the verdict until commit.
//
// Each piece's loss averages over its own weight w_i; backward is seeded with scale * w_i / reference, and the whole is
// divided once by scale * sum(w) / reference.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>

#include "measure/step_clock.h"
#include "task/task.h"
#include "train/step/agreement.h"
#include "train/step/gradient_sync.h"
#include "train/step/step_program.h"

namespace redline::train {

class EagerStep : public StepProgram {
 public:
  // `sync` null: the gradients stay this process's.
  EagerStep(task::Task& task, torch::Device device, measure::StepClock& clock, Agreement& agreement,
            GradientSync* sync = nullptr);

  void begin(const StepPass& pass) override;
  void add(const task::Batch& piece, bool last) override;
  void skip(bool last) override;
  StepVerdict finish() override;
  double weight_so_far() const override;
  double divisor(double weight) const override { return pass_.loss_scale * (weight / known_reference()); }
  void abandon() override;

  // Named outputs of the next pass (probe); kept from its first piece.
  void want_outputs(bool on) { want_outputs_ = on; }
  const std::map<std::string, torch::Tensor>& outputs() const { return outputs_; }

 protected:
  // The task's loss() of a piece, or what equals it. The context has the keys of the pass.
  virtual task::Loss loss_of(const task::Batch& batch, task::Context& context) { return task_.loss(batch, context); }
  task::Task& task() { return task_; }
  torch::Device device() const { return device_; }
  const StepPass& pass() const { return pass_; }

 private:
  double known_reference() const;
  void clear();
  task::Loss forward(const task::Batch& batch, bool counts);
  void take_part();
  void add_on_cpu(const task::Loss& loss);
  void add_on_device(const task::Loss& loss);
  void backward(const torch::Tensor& value, const torch::Tensor& seed);

  task::Task& task_;
  torch::Device device_;
  measure::StepClock& clock_;
  Agreement& agreement_;
  GradientSync* sync_;
  bool last_ = false;  // the piece at hand
  StepPass pass_;
  StepVerdict verdict_;
  double reference_ = 0.0;               // CPU
  torch::Tensor loss_sum_, weight_sum_;  // other devices: read once, at the end
  torch::Tensor reference_tensor_;
  std::map<std::string, torch::Tensor> metric_sums_;
  bool want_outputs_ = false;
  std::map<std::string, torch::Tensor> outputs_;
  task::Batch stand_in_;  // one sample, for a rank that has none in its turn; only over several ranks
};

// Running statistics of BatchNorm layers, applied at commit in the order of the pieces.
void apply_batch_norm(const std::vector<task::BatchNormUpdate>& updates);

}  // namespace redline::train
