// A compiled step, loaded: forward and backward of a piece in one call, without Python.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <memory>

#include "task/compiled_part.h"
#include "train/compile/step_trace.h"

namespace torch::inductor {
class AOTIModelPackageLoader;
}

namespace redline::train {

class CompiledPackage {
 public:
  // Throws what LibTorch throws for a file that is no package.
  CompiledPackage(const std::filesystem::path& file, StepSignature signature, torch::nn::Module& module);
  ~CompiledPackage();

  struct Result {
    task::PartResult part;  // value without history
    std::map<std::string, torch::Tensor> outputs;
    std::vector<torch::Tensor> gradients;  // parallel to parameters(); larger by the scale
  };
  // Draws with the context's keys; BatchNorm statistics wait in it.
  Result run(const task::Tensors& prepared, task::Context& context, double loss_scale);
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }
  const StepSignature& signature() const { return signature_; }

 private:
  StepSignature signature_;
  std::vector<torch::Tensor> weights_, parameters_;
  std::vector<task::BatchNormUpdate> norms_;  // without the statistics
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader_;
};

// The loss with a history: backward hands out the gradients that are there already, times its seed / loss_scale.
torch::Tensor with_gradients(const torch::Tensor& value, const std::vector<torch::Tensor>& parameters,
                             std::vector<torch::Tensor> gradients, double loss_scale);

}  // namespace redline::train
