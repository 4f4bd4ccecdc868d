// Initial weights drawn from (seed, parameter name) alone: the order of construction, the thread count and LibTorch's
// default generator have no part in them.
#pragma once

#include <torch/torch.h>

#include <string>

namespace redline::models {

void fill_uniform(torch::Tensor& parameter, double bound, uint64_t seed, const std::string& name);  // U(-bound, bound)
void fill_normal(torch::Tensor& parameter, double deviation, uint64_t seed, const std::string& name);

// Inputs that meet in one output: product of all dimensions but the first (PyTorch's fan_in of Linear and Conv
// weights).
int64_t fan_in(const torch::Tensor& weight);
// PyTorch's default of Linear and Conv: kaiming_uniform with a = sqrt(5), which is U(-1/sqrt(fan_in), 1/sqrt(fan_in));
// biases the same.
void default_init(torch::Tensor& weight, torch::Tensor& bias, uint64_t seed, const std::string& name);
void xavier_uniform(torch::Tensor& weight, uint64_t seed, const std::string& name);
void xavier_normal(torch::Tensor& weight, uint64_t seed, const std::string& name);

// A weight and perhaps a bias under those names, not initialised: what Linear, Conv1d and Conv2d are to a state dict.
struct AffineImpl : torch::nn::Module {
  AffineImpl(std::vector<int64_t> shape, bool with_bias);
  torch::Tensor weight, bias;  // bias undefined when there is none
};
TORCH_MODULE(Affine);

}  // namespace redline::models
