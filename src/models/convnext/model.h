// ConvNeXt (Liu et al. 2022) under timm's parameter names: stem, stages of blocks, the head's norm, and what the losses
// need besides. Activations are [N, H, W, C] from the stem to the pooling, so no layer permutes; the plain path, made
// of LibTorch's operators, takes and gives the same.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "models/convnext/options.h"
#include "models/layers/keyed_init.h"
#include "task/context.h"

namespace redline::models::convnext {

inline constexpr double kNormEpsilon = 1e-6;

// What every layer is told about the pass it is in.
struct Pass {
  task::Context* ctx = nullptr;
  bool fused = true;
};

// Convolution k x k with stride k, and LayerNorm: after it in the stem (order "conv, norm"), before it in a
// down-sampling ("norm, conv"). The children are "0" and "1" in that order.
struct PatchLayerImpl : torch::nn::Module {
  PatchLayerImpl(int64_t in, int64_t out, int64_t size, bool norm_first);
  void initialise(uint64_t seed, const std::string& name);
  Affine norm{nullptr}, conv{nullptr};
  int64_t size;
  bool norm_first;
};
TORCH_MODULE(PatchLayer);

struct MlpImpl : torch::nn::Module {
  MlpImpl(int64_t dim, bool with_grn);
  Affine fc1{nullptr}, fc2{nullptr}, grn{nullptr};
};
TORCH_MODULE(Mlp);

struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t dim, const Options& options, double drop_path_rate, std::string full_name);
  void initialise(uint64_t seed, double layer_scale_init);
  Affine conv_dw{nullptr}, norm{nullptr};
  Mlp mlp{nullptr};
  torch::Tensor gamma;  // undefined without layer scale
  double drop_path;
  std::string place;  // its name in the model: the key of its draws
};
TORCH_MODULE(Block);

// The layers' forward passes; dispatched to plain:: or fused:: by what they are given.
torch::Tensor patch_layer(const PatchLayer& layer, const torch::Tensor& x, const Pass& pass);
torch::Tensor block(const Block& b, const torch::Tensor& x, const Pass& pass);
namespace plain {
torch::Tensor patch_layer(const PatchLayer& layer, const torch::Tensor& x);
torch::Tensor block(const Block& b, const torch::Tensor& x, const Pass& pass);
}  // namespace plain
namespace fused {
torch::Tensor patch_layer(const PatchLayer& layer, const torch::Tensor& x);
torch::Tensor block(const Block& b, const torch::Tensor& x, const Pass& pass);
}  // namespace fused

// What makes features of pictures; its children lie directly under the model's root.
class Backbone {
 public:
  virtual ~Backbone() = default;
  virtual void add_to(torch::nn::Module& root) = 0;
  virtual void initialise(uint64_t seed) = 0;
  // images [N, C, H, W] in either memory format -> [N, H', W', D].
  virtual torch::Tensor features(const torch::Tensor& images, const Pass& pass) = 0;
  virtual double forward_multiply_adds(int64_t image_size) const = 0;
  virtual bool batch_statistics() const { return false; }
};
std::unique_ptr<Backbone> make_convnext(const Options& options);
std::unique_ptr<Backbone> make_baseline(const Options& options);

struct Encoded {
  torch::Tensor features_NHWD;
  torch::Tensor embedding_NE;  // float32, not of unit length
};

class ModelImpl : public torch::nn::Module {
 public:
  ModelImpl(const Options& options, uint64_t seed);
  Encoded encode(const torch::Tensor& images, task::Context& ctx);
  torch::Tensor logits(const torch::Tensor& embedding_NE) const;  // where the loss has a classifier
  // [classes, E]; undefined where the loss has none.
  torch::Tensor class_weights() const { return arcface_.is_empty() ? torch::Tensor() : arcface_->weight; }
  torch::Tensor centers() const { return centers_.is_empty() ? torch::Tensor() : centers_->weight; }
  const Backbone& backbone() const { return *backbone_; }

 private:
  Options options_;
  std::unique_ptr<Backbone> backbone_;
  Affine head_norm_{nullptr}, head_fc_{nullptr}, embedding_{nullptr}, arcface_{nullptr}, centers_{nullptr};
};
TORCH_MODULE(Model);

}  // namespace redline::models::convnext
