// Exponential moving average of the whole state (parameters and buffers), updated after committed steps: no debias, no
// warm-up, starts as the initial weights (ConvNeXt's ModelEma, NeMo's EMA callback).
#pragma once

#include <torch/torch.h>

#include <vector>

#include "train/files/safetensors.h"

namespace redline::train {

class Ema {
 public:
  // Copies the values; the tensors stay the model's.
  Ema(double decay, NamedTensors model);

  void update();
  // Exchanges averaged and live values in place, for validation with the averages; twice = nothing.
  void swap();
  const NamedTensors& averages() const { return averages_; }
  // Throws CheckpointError when names or shapes differ.
  void load(const std::map<std::string, torch::Tensor>& averages);

 private:
  double decay_;
  NamedTensors model_, averages_;
  std::vector<torch::Tensor> live_float_, average_float_;  // lerped; the others are copied
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copied_;
};

}  // namespace redline::train
