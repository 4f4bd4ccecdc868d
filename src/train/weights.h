// Weights into a module by name: strict (probe, resume) or partial (load_from), with lists of what did not fit.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace redline::train {

struct WeightsReport {
  std::vector<std::string> loaded, missing, unexpected,
      reshaped;  // reshaped: in both, with different shapes (not loaded)
  bool complete() const { return missing.empty() && unexpected.empty() && reshaped.empty(); }
  // "42 tensors loaded; missing: a, b; ..." with at most `at_most` names each.
  std::string text(size_t at_most = 8) const;
};

// Copies what fits; half-precision weights are widened.
WeightsReport load_weights(torch::nn::Module& module, const std::map<std::string, torch::Tensor>& tensors);

// A .safetensors file, a checkpoint generation, or a run directory (its newest generation).
std::map<std::string, torch::Tensor> read_weights(const std::filesystem::path& path);

}  // namespace redline::train
