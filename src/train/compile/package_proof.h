// Does a package compute what the task computes, and is it faster? One piece both ways, with the same draws.
//
// "The same" means within rounding, for all that a step goes by: loss and weight, the gradient of each parameter (and
// which have none: an optimiser passes those over), the statistics of BatchNorm. Metrics are shown and decide nothing;
// an accuracy may turn over a tie, so they are not compared.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "core/precision.h"
#include "task/compiled_part.h"
#include "task/context.h"

namespace redline::train {

class CompiledPackage;
struct StepPass;

// Of one piece.
struct StepNumbers {
  torch::Tensor value, weight;
  std::vector<std::string> names;        // of the parameters that may learn
  std::vector<torch::Tensor> gradients;  // parallel; undefined: takes no part
  std::vector<task::BatchNormUpdate> norms;
};

struct Proof {
  bool decided = true;                     // false: the task's own numbers are not finite, so the piece shows nothing
  double loss_off = 0, gradients_off = 0;  // relative
  std::string problem;                     // what is not the same; empty: nothing
};
Proof compare_steps(const StepNumbers& found, const StepNumbers& wanted, Precision precision);

struct ProvedPiece {
  const task::Batch& batch;
  const task::Tensors& prepared;
  const StepPass& pass;
  torch::Device device;
};
Proof prove_package(task::Task& task, CompiledPackage& package, const ProvedPiece& piece);

struct RaceTimes {
  double eager_seconds = 0, compiled_seconds = 0;  // medians
};
RaceTimes race_package(task::Task& task, CompiledPackage& package, const ProvedPiece& piece);

}  // namespace redline::train
