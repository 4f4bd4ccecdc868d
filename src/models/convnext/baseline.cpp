// The baseline: num_blocks layers of convolution 3 x 3 with stride 2, BatchNorm and ReLU, twice the channels each time
// (at most eight times base_channels). LibTorch's convolutions are good at these; the point is to be fast by being
// small.
#include <fmt/format.h>

#include "models/convnext/model.h"
#include "models/layers/batch_norm.h"

namespace redline::models::convnext {

namespace {

struct BaselineLayerImpl : torch::nn::Module {
  BaselineLayerImpl(int64_t in, int64_t out) {
    conv = register_module("conv", Affine(std::vector<int64_t>{out, in, 3, 3}, false));
    bn = register_module("bn", BatchNorm(out));
  }
  Affine conv{nullptr};
  BatchNorm bn{nullptr};
};
TORCH_MODULE(BaselineLayer);

// One rank: LibTorch's kernel, whose statistics wait for commit. Several: the shared layer, whose statistics span all.
torch::Tensor normalise(const BatchNorm& bn, const torch::Tensor& x, task::Context& ctx) {
  if (ctx.collective != nullptr && ctx.collective->world_size() > 1)
    return bn->forward(x.permute({0, 2, 3, 1}), ctx).permute({0, 3, 1, 2});
  const torch::Tensor in = x.to(torch::kFloat32);
  if (!ctx.training())
    return torch::batch_norm(in, bn->weight, bn->bias, bn->running_mean, bn->running_var, false, bn->momentum, bn->eps,
                             false);
  const auto [out, mean, rstd] = at::native_batch_norm(in, bn->weight, bn->bias, {}, {}, true, bn->momentum, bn->eps);
  bn->defer(mean, rstd.detach().pow(-2) - bn->eps, static_cast<double>(in.numel() / in.size(1)), ctx);
  return out;
}

class Baseline : public Backbone {
 public:
  explicit Baseline(const Options& options) {
    int64_t in = options.in_channels;
    for (int64_t i = 0; i < options.num_blocks; ++i) {
      const int64_t out = options.base_channels << std::min<int64_t>(i, 3);
      layers_.emplace_back(in, out);
      in = out;
    }
  }

  void add_to(torch::nn::Module& root) override {
    auto blocks = std::make_shared<torch::nn::Module>("blocks");
    for (size_t i = 0; i < layers_.size(); ++i) blocks->register_module(std::to_string(i), layers_[i].ptr());
    root.register_module("blocks", blocks);
  }

  void initialise(uint64_t seed) override {
    for (size_t i = 0; i < layers_.size(); ++i) {
      torch::Tensor none;
      default_init(layers_[i]->conv->weight, none, seed, fmt::format("blocks.{}.conv", i));
      layers_[i]->bn->initialise();
    }
  }

  torch::Tensor features(const torch::Tensor& images, const Pass& pass) override {
    torch::Tensor x = images;
    for (BaselineLayer& layer : layers_)
      x = torch::relu(normalise(layer->bn, torch::conv2d(x, layer->conv->weight, {}, 2, 1), *pass.ctx));
    return x.permute({0, 2, 3, 1});
  }

  double forward_multiply_adds(int64_t image_size) const override {
    double total = 0.0;
    int64_t side = image_size;
    for (const BaselineLayer& layer : layers_) {
      side = (side + 1) / 2;
      total += static_cast<double>(side * side * layer->conv->weight.numel());
    }
    return total;
  }
  bool batch_statistics() const override { return true; }

 private:
  std::vector<BaselineLayer> layers_;
};

}  // namespace

std::unique_ptr<Backbone> make_baseline(const Options& options) { return std::make_unique<Baseline>(options); }

}  // namespace redline::models::convnext
