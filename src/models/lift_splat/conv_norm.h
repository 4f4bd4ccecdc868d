// Convolutions of maps [M, C, H, W] (channels last in memory) with BatchNorm and ReLU, as ResNets and U-Nets stack
// them.
#pragma once

#include <torch/torch.h>

#include <string>

#include "models/layers/batch_norm.h"
#include "models/layers/keyed_init.h"
#include "task/context.h"

namespace redline::models::lift_splat {

// What every layer of a pass needs.
struct Pass {
  task::Context* ctx = nullptr;
  bool fused = true;
};

torch::Tensor convolve(const torch::Tensor& x_MCHW, const Affine& layer, int64_t stride, int64_t padding);
// 3x3 with stride 1 and a margin of one, without a bias.
torch::Tensor convolve3x3(const torch::Tensor& x_MCHW, const torch::Tensor& weight, const Pass& pass);
// relu(norm(x) + residual); residual may be undefined.
torch::Tensor norm_relu(const BatchNorm& norm, const torch::Tensor& x_MCHW, const torch::Tensor& residual,
                        const Pass& pass);
torch::Tensor norm_only(const BatchNorm& norm, const torch::Tensor& x_MCHW, const Pass& pass);
// Bilinear with the corners on the corners.
torch::Tensor enlarge(const torch::Tensor& x_MCHW, int64_t factor);
// The 3x3 convolution of an enlarged map, without a bias.
torch::Tensor convolve_enlarged(const torch::Tensor& x_MCHW, int64_t factor, const Affine& layer, const Pass& pass);

// A weight without bias drawn as PyTorch's convolutions are; a BatchNorm set to 1 and 0.
Affine plain_conv(int64_t out, int64_t in, int64_t kernel, const std::string& path, uint64_t seed, bool bias = false);
Affine resnet_conv(int64_t out, int64_t in, int64_t kernel, const std::string& path, uint64_t seed);
BatchNorm fresh_norm(int64_t channels);

// Two 3x3 convolutions, each with norm and ReLU, on skip and the enlarged x side by side: lift-splat-shoot's Up.
struct UpImpl : torch::nn::Module {
  UpImpl(int64_t in, int64_t out, int64_t enlarge_by, const std::string& path, uint64_t seed);
  torch::Tensor forward(const torch::Tensor& x_MCHW, const torch::Tensor& skip_MCHW, const Pass& pass);
  int64_t factor;
  Affine conv0{nullptr}, conv3{nullptr};
  BatchNorm norm1{nullptr}, norm4{nullptr};
};
TORCH_MODULE(Up);

}  // namespace redline::models::lift_splat
