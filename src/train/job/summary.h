// The model in words: modules, parameters, bytes.
#pragma once

#include <torch/torch.h>

#include <string>

namespace redline::train {

struct ModelSize {
  int64_t parameters = 0, trainable = 0, buffers = 0;  // elements
  int64_t bytes = 0;
};
ModelSize model_size(torch::nn::Module& module);

// One line per module down to `depth`, as Lightning's summary: name, type, parameters.
std::string model_summary(torch::nn::Module& module, int depth = 2);

}  // namespace redline::train
