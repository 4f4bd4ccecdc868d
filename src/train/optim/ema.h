// Exponential moving average of the whole state (parameters and buffers), updated after committed steps: no debias, no
// warm-up, starts as the initial weights (ConvNeXt's ModelEma, NeMo's EMA callback).
#pragma once

#include <torch/torch.h>

#include <vector>

#include "config/fields.h"
#include "train/files/safetensors.h"

namespace redline::train {

// The options `exp_manager.ema`.
struct EmaConfig {
  bool enable = false;
  double decay = 0.999;
  int64_t every_n_steps = 1;
  bool validate_original_weights = false;
  static config::Table<EmaConfig> fields();
};

class Ema {
 public:
  // Copies the values; the tensors stay the model's.
  Ema(const EmaConfig& config, NamedTensors model);
  const EmaConfig& config() const { return config_; }

  // After committed step `step` (from 1), when the config says so.
  void update(int64_t step);
  // Exchanges averaged and live values in place, for validation with the averages; twice = nothing.
  void swap();
  const NamedTensors& averages() const { return averages_; }
  // Throws CheckpointError when names or shapes differ.
  void load(const std::map<std::string, torch::Tensor>& averages);

 private:
  EmaConfig config_;
  NamedTensors model_, averages_;
  std::vector<torch::Tensor> live_float_, average_float_;  // lerped; the others are copied
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copied_;
};

}  // namespace redline::train
