// The grid's network: the first three stages of ResNet-18 without its pooling, enlarged again onto the first stage and
// onto the whole grid (lift-splat-shoot's BevEncode).
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "models/lift_splat/conv_norm.h"

namespace redline::models::lift_splat {

struct BasicBlockImpl : torch::nn::Module {
  BasicBlockImpl(int64_t in, int64_t out, int64_t stride, const std::string& path, uint64_t seed);
  torch::Tensor forward(const torch::Tensor& x_MCHW, const Pass& pass);
  int64_t stride;
  Affine conv1{nullptr}, conv2{nullptr}, shrink{nullptr};  // shrink: downsample.0, where the size changes
  BatchNorm bn1{nullptr}, bn2{nullptr}, shrink_norm{nullptr};
};
TORCH_MODULE(BasicBlock);

struct BevEncoderImpl : torch::nn::Module {
  BevEncoderImpl(int64_t in, int64_t out, const std::string& path, uint64_t seed);
  torch::Tensor forward(const torch::Tensor& grid_BCXY, const Pass& pass);  // [B, out, X, Y]

 private:
  std::vector<BasicBlock> stage(const std::string& name, int64_t in, int64_t out, int64_t stride, uint64_t seed);
  std::string path_;
  Affine conv1_{nullptr}, up_conv_{nullptr}, head_{nullptr};
  BatchNorm bn1_{nullptr}, up_norm_{nullptr};
  std::vector<BasicBlock> layer1_, layer2_, layer3_;
  Up up1_{nullptr};
};
TORCH_MODULE(BevEncoder);

}  // namespace redline::models::lift_splat
