#include "models/lift_splat/bev_encoder.h"

namespace redline::models::lift_splat {

BasicBlockImpl::BasicBlockImpl(int64_t in, int64_t out, int64_t step, const std::string& path, uint64_t seed)
    : stride(step) {
  conv1 = register_module("conv1", resnet_conv(out, in, 3, path + ".conv1", seed));
  bn1 = register_module("bn1", fresh_norm(out));
  conv2 = register_module("conv2", resnet_conv(out, out, 3, path + ".conv2", seed));
  bn2 = register_module("bn2", fresh_norm(out));
  {
    const torch::NoGradGuard no_grad;
    bn2->weight.zero_();  // a block begins as the identity
  }
  if (step == 1 && in == out) return;
  auto list = register_module("downsample", std::make_shared<torch::nn::Module>());
  shrink = list->register_module("0", resnet_conv(out, in, 1, path + ".downsample.0", seed));
  shrink_norm = list->register_module("1", fresh_norm(out));
}

torch::Tensor BasicBlockImpl::forward(const torch::Tensor& x_MCHW, const Pass& pass) {
  const torch::Tensor first =
      stride == 1 ? convolve3x3(x_MCHW, conv1->weight, pass) : convolve(x_MCHW, conv1, stride, 1);
  const torch::Tensor y = convolve3x3(norm_relu(bn1, first, {}, pass), conv2->weight, pass);
  const torch::Tensor around =
      shrink.is_empty() ? x_MCHW : norm_only(shrink_norm, convolve(x_MCHW, shrink, stride, 0), pass);
  return norm_relu(bn2, y, around, pass);
}

BevEncoderImpl::BevEncoderImpl(int64_t in, int64_t out, const std::string& path, uint64_t seed) : path_(path) {
  conv1_ = register_module("conv1", plain_conv(64, in, 7, path + ".conv1", seed));
  bn1_ = register_module("bn1", fresh_norm(64));
  layer1_ = stage("layer1", 64, 64, 1, seed);
  layer2_ = stage("layer2", 64, 128, 2, seed);
  layer3_ = stage("layer3", 128, 256, 2, seed);
  up1_ = register_module("up1", Up(64 + 256, 256, 4, path + ".up1", seed));
  auto up2 = register_module("up2", std::make_shared<torch::nn::Module>());
  up_conv_ = up2->register_module("1", plain_conv(128, 256, 3, path + ".up2.1", seed));
  up_norm_ = up2->register_module("2", fresh_norm(128));
  head_ = up2->register_module("4", plain_conv(out, 128, 1, path + ".up2.4", seed, /*bias=*/true));
}

std::vector<BasicBlock> BevEncoderImpl::stage(const std::string& name, int64_t in, int64_t out, int64_t stride,
                                              uint64_t seed) {
  std::vector<BasicBlock> blocks;
  auto list = register_module(name, torch::nn::ModuleList());
  for (int64_t i = 0; i < 2; ++i) {
    blocks.emplace_back(i == 0 ? in : out, out, i == 0 ? stride : 1, path_ + "." + name + "." + std::to_string(i),
                        seed);
    list->push_back(blocks.back());
  }
  return blocks;
}

torch::Tensor BevEncoderImpl::forward(const torch::Tensor& grid_BCXY, const Pass& pass) {
  torch::Tensor x = norm_relu(bn1_, convolve(grid_BCXY, conv1_, 2, 3), {}, pass);
  for (BasicBlock& block : layer1_) x = block->forward(x, pass);
  const torch::Tensor half = x;
  for (BasicBlock& block : layer2_) x = block->forward(x, pass);
  for (BasicBlock& block : layer3_) x = block->forward(x, pass);
  x = up1_->forward(x, half, pass);
  x = norm_relu(up_norm_, convolve_enlarged(x, 2, up_conv_, pass), {}, pass);
  return convolve(x, head_, 1, 0);
}

}  // namespace redline::models::lift_splat
