#include "models/lift_splat/conv_norm.h"

#include <cmath>

#include "models/lift_splat/enlarged_conv.h"
#include "models/lift_splat/norm_relu_fused.h"
#include "models/lift_splat/winograd_conv.h"

namespace redline::models::lift_splat {

torch::Tensor convolve(const torch::Tensor& x_MCHW, const Affine& layer, int64_t stride, int64_t padding) {
  return at::conv2d(x_MCHW, layer->weight, layer->bias, stride, padding);
}

torch::Tensor convolve3x3(const torch::Tensor& x_MCHW, const torch::Tensor& weight, const Pass& pass) {
  if (pass.fused && fused::winograd_fits(x_MCHW, weight)) return fused::winograd_conv(x_MCHW, weight);
  return at::conv2d(x_MCHW, weight, {}, 1, 1);
}

torch::Tensor norm_only(const BatchNorm& norm, const torch::Tensor& x_MCHW, const Pass& pass) {
  if (pass.fused && fused::norm_fits(x_MCHW, *pass.ctx)) return fused::norm_relu(norm, x_MCHW, {}, false, *pass.ctx);
  return norm->forward(x_MCHW.permute({0, 2, 3, 1}), *pass.ctx).permute({0, 3, 1, 2});
}

torch::Tensor norm_relu(const BatchNorm& norm, const torch::Tensor& x_MCHW, const torch::Tensor& residual,
                        const Pass& pass) {
  if (pass.fused && fused::norm_fits(x_MCHW, *pass.ctx))
    return fused::norm_relu(norm, x_MCHW, residual, true, *pass.ctx);
  const torch::Tensor y = norm->forward(x_MCHW.permute({0, 2, 3, 1}), *pass.ctx).permute({0, 3, 1, 2});
  return torch::relu(residual.defined() ? y + residual : y);
}

torch::Tensor enlarge(const torch::Tensor& x_MCHW, int64_t factor) {
  return at::upsample_bilinear2d(x_MCHW, {x_MCHW.size(2) * factor, x_MCHW.size(3) * factor}, /*align_corners=*/true);
}

torch::Tensor convolve_enlarged(const torch::Tensor& x_MCHW, int64_t factor, const Affine& layer, const Pass& pass) {
  if (pass.fused && fused::enlarged_conv_fits(x_MCHW)) return fused::enlarged_conv(x_MCHW, layer->weight, factor, {});
  return convolve(enlarge(x_MCHW, factor), layer, 1, 1);
}

Affine plain_conv(int64_t out, int64_t in, int64_t kernel, const std::string& path, uint64_t seed, bool bias) {
  Affine layer(std::vector<int64_t>{out, in, kernel, kernel}, bias);
  default_init(layer->weight, layer->bias, seed, path);
  return layer;
}

Affine resnet_conv(int64_t out, int64_t in, int64_t kernel, const std::string& path, uint64_t seed) {
  Affine layer(std::vector<int64_t>{out, in, kernel, kernel}, false);
  // He et al. 2015 by the outputs, for ReLU.
  fill_normal(layer->weight, std::sqrt(2.0 / static_cast<double>(out * kernel * kernel)), seed, path + ".weight");
  return layer;
}

BatchNorm fresh_norm(int64_t channels) {
  BatchNorm norm(channels);
  norm->initialise();
  return norm;
}

UpImpl::UpImpl(int64_t in, int64_t out, int64_t enlarge_by, const std::string& path, uint64_t seed)
    : factor(enlarge_by) {
  auto conv = register_module("conv", std::make_shared<torch::nn::Module>());
  conv0 = conv->register_module("0", plain_conv(out, in, 3, path + ".conv.0", seed));
  norm1 = conv->register_module("1", fresh_norm(out));
  conv3 = conv->register_module("3", plain_conv(out, out, 3, path + ".conv.3", seed));
  norm4 = conv->register_module("4", fresh_norm(out));
}

torch::Tensor UpImpl::forward(const torch::Tensor& x_MCHW, const torch::Tensor& skip_MCHW, const Pass& pass) {
  torch::Tensor x;
  if (pass.fused && fused::enlarged_conv_fits(x_MCHW)) {
    // A convolution of maps side by side is the sum of their convolutions.
    const auto parts = conv0->weight.split_with_sizes({skip_MCHW.size(1), x_MCHW.size(1)}, 1);
    x = fused::enlarged_conv(x_MCHW, parts[1], factor, convolve3x3(skip_MCHW, parts[0], pass));
  } else {
    x = convolve(torch::cat({skip_MCHW, enlarge(x_MCHW, factor).to(skip_MCHW.scalar_type())}, 1), conv0, 1, 1);
  }
  x = norm_relu(norm1, x, {}, pass);
  return norm_relu(norm4, convolve3x3(x, conv3->weight, pass), {}, pass);
}

}  // namespace redline::models::lift_splat
