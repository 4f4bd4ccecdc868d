// Names what went wrong in a step that is not finite: the first offending tensor in the order of the data flow, and the
// samples.
#pragma once

#include <string>
#include <vector>

#include "task/task.h"
#include "train/optim/optimizer.h"
#include "train/step/step_program.h"

namespace redline::train {

struct NonFiniteReport {
  std::string tensor;  // "loss scale", "weight fc.bias", "batch tensor audio", "output of aten::addmm [8, 176]
                       // (operator 57)", "loss", "gradient of fc.weight"
  std::vector<int64_t> samples;
};

struct NonFiniteEvidence {
  const std::vector<const task::Batch*>& batches;  // of the step, in order
  const StepPass& pass;
  bool loss_is_finite = true;
  std::string bad_gradient;  // parameter's name; empty when gradients were finite or not looked at
};

// Runs the forward pass again under a watch when that is needed to find the operator; leaves no gradients behind.
NonFiniteReport explain_non_finite(task::Task& task, const Optimizer& optimizer, torch::Device device,
                                   const NonFiniteEvidence& evidence);

}  // namespace redline::train
