// A task's forward and backward of one piece, recorded: what goes in (weights, what the task prepared, draws), what
// comes out (loss, metrics, notes, statistics, gradients) and the operators between. Weights and draws are inputs, so
// a step compiled from it serves any weights, any step and any samples of these shapes.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "core/precision.h"
#include "task/compiled_part.h"
#include "train/compile/operator_recorder.h"

namespace redline::train {

struct StepPass;

// Where the pieces of a compiled step's inputs and outputs are. Inputs: weights, prepared tensors, draws, the loss
// scale. Outputs: value, weight, metrics, notes, named outputs, mean and variance of each norm, gradients (which are
// larger by the loss scale).
struct StepSignature {
  std::vector<std::string> weights;   // parameters and buffers of the module, by name
  std::vector<std::string> prepared;  // of CompiledPart::before()
  std::vector<task::DrawSpec> draws;
  bool takes_scale = true;
  std::vector<std::string> metrics, notes, outputs;
  struct Norm {
    std::string mean, variance, count;  // buffers by name; the last may be empty
    double momentum = 0.1;
  };
  std::vector<Norm> norms;
  std::vector<std::string> gradients;  // parameters by name
};

struct TracedStep {
  StepSignature signature;
  RecordedProgram program;
  nlohmann::json inputs = nlohmann::json::array();   // number and layout of each input
  nlohmann::json outputs = nlohmann::json::array();  // numbers
  // The whole as the compiler reads it, constants aside; equal for equal steps.
  nlohmann::json text() const;
};

struct TraceOptions {
  uint64_t seed = 0;  // of the draws, whose values do not matter
  Precision precision = Precision::Fp32;
  torch::Device device = torch::kCPU;
  bool wants_outputs = false;
};

// Runs the part once, forward and backward; gradients of the module stay as they are. Throws CannotCompile.
TracedStep trace_step(task::Task& task, const task::Tensors& prepared, const std::vector<int64_t>& sample_ids,
                      const TraceOptions& options);

// While it lives, the module's parameters have no gradients; then they have those of before. A backward pass beside the
// step's own adds to them: a block that is computed again in backward (models/layers/recompute.h) always does.
class GradientsAside {
 public:
  explicit GradientsAside(torch::nn::Module& module);
  ~GradientsAside();
  GradientsAside(const GradientsAside&) = delete;
  GradientsAside& operator=(const GradientsAside&) = delete;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> kept_;  // parameter, gradient
};

// Parameters and buffers by name, each tensor once.
std::vector<std::pair<std::string, torch::Tensor>> named_state(torch::nn::Module& module);

}  // namespace redline::train
