#include "models/convnext/model.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>

#include "core/error.h"
#include "models/layers/recompute.h"

namespace redline::models::convnext {

namespace {

// timm truncates at +-2, a hundred deviations away: no draw gets there.
constexpr double kInitDeviation = 0.02;

void initialise_affine(Affine& layer, uint64_t seed, const std::string& name) {
  fill_normal(layer->weight, kInitDeviation, seed, name + ".weight");
  if (layer->bias.defined()) layer->bias.zero_();
}

void initialise_norm(Affine& norm) {
  norm->weight.fill_(1.0);
  norm->bias.zero_();
}

torch::Tensor layer_norm_f32(const torch::Tensor& x, const Affine& norm) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return torch::layer_norm(x.to(torch::kFloat32), {x.size(-1)}, norm->weight, norm->bias, kNormEpsilon);
}

class ConvNeXt : public Backbone {
 public:
  explicit ConvNeXt(const Options& options) : options_(options) {
    int64_t total = 0, index = 0;
    for (const int64_t depth : options.depths) total += depth;
    stem_ = PatchLayer(options.in_channels, options.dims[0], 4, /*norm_first=*/false);
    for (size_t s = 0; s < options.dims.size(); ++s) {
      Stage stage;
      if (s > 0) stage.downsample = PatchLayer(options.dims[s - 1], options.dims[s], 2, /*norm_first=*/true);
      for (int64_t b = 0; b < options.depths[s]; ++b, ++index) {
        const double rate =
            total > 1 ? options.drop_path_rate * static_cast<double>(index) / static_cast<double>(total - 1) : 0.0;
        stage.blocks.emplace_back(options.dims[s], options, rate, fmt::format("stages.{}.blocks.{}", s, b));
      }
      stages_.push_back(std::move(stage));
    }
  }

  void add_to(torch::nn::Module& root) override {
    root.register_module("stem", stem_.ptr());
    auto stages = std::make_shared<torch::nn::Module>("stages");
    for (size_t s = 0; s < stages_.size(); ++s) {
      auto stage = std::make_shared<torch::nn::Module>("stage"), blocks = std::make_shared<torch::nn::Module>("blocks");
      if (!stages_[s].downsample.is_empty()) stage->register_module("downsample", stages_[s].downsample.ptr());
      for (size_t b = 0; b < stages_[s].blocks.size(); ++b)
        blocks->register_module(std::to_string(b), stages_[s].blocks[b].ptr());
      stage->register_module("blocks", blocks);
      stages->register_module(std::to_string(s), stage);
    }
    root.register_module("stages", stages);
  }

  void initialise(uint64_t seed) override {
    stem_->initialise(seed, "stem");
    for (size_t s = 0; s < stages_.size(); ++s) {
      if (!stages_[s].downsample.is_empty())
        stages_[s].downsample->initialise(seed, fmt::format("stages.{}.downsample", s));
      for (Block& b : stages_[s].blocks) b->initialise(seed, options_.layer_scale_init);
    }
  }

  torch::Tensor features(const torch::Tensor& images, const Pass& pass) override {
    torch::Tensor x = patch_layer(stem_, images.permute({0, 2, 3, 1}), pass);
    for (Stage& stage : stages_) {
      if (!stage.downsample.is_empty()) x = patch_layer(stage.downsample, x, pass);
      for (Block& b : stage.blocks) x = options_.gradient_checkpointing ? again(b, x, pass) : block(b, x, pass);
    }
    return x;
  }

  double forward_multiply_adds(int64_t image_size) const override {
    int64_t side = image_size / 4;
    double total = static_cast<double>(side * side * options_.dims[0] * options_.in_channels * 16);
    for (size_t s = 0; s < stages_.size(); ++s) {
      const int64_t d = options_.dims[s];
      if (s > 0) {
        side /= 2;
        total += static_cast<double>(side * side * d * options_.dims[s - 1] * 4);
      }
      total += static_cast<double>(options_.depths[s] * side * side * (49 * d + 8 * d * d));
    }
    return total;
  }

 private:
  // Of the block only its input is kept.
  static torch::Tensor again(const Block& b, const torch::Tensor& x, const Pass& pass) {
    return recomputed({x}, *pass.ctx,
                      [b, fused = pass.fused](const std::vector<torch::Tensor>& in,
                                              task::Context& ctx) mutable -> std::vector<torch::Tensor> {
                        return {block(b, in[0], {&ctx, fused})};
                      })[0];
  }

  struct Stage {
    PatchLayer downsample{nullptr};
    std::vector<Block> blocks;
  };
  Options options_;
  PatchLayer stem_{nullptr};
  std::vector<Stage> stages_;
};

}  // namespace

PatchLayerImpl::PatchLayerImpl(int64_t in, int64_t out, int64_t side, bool normalise_first)
    : size(side), norm_first(normalise_first) {
  conv = Affine(std::vector<int64_t>{out, in, side, side}, true);
  norm = Affine(std::vector<int64_t>{norm_first ? in : out}, true);
  register_module("0", norm_first ? norm : conv);
  register_module("1", norm_first ? conv : norm);
}

void PatchLayerImpl::initialise(uint64_t seed, const std::string& name) {
  initialise_affine(conv, seed, name + (norm_first ? ".1" : ".0"));
  initialise_norm(norm);
}

MlpImpl::MlpImpl(int64_t dim, bool with_grn) {
  fc1 = register_module("fc1", Affine(std::vector<int64_t>{4 * dim, dim}, true));
  if (with_grn) grn = register_module("grn", Affine(std::vector<int64_t>{4 * dim}, true));
  fc2 = register_module("fc2", Affine(std::vector<int64_t>{dim, 4 * dim}, true));
}

BlockImpl::BlockImpl(int64_t dim, const Options& options, double drop_path_rate, std::string full_name)
    : drop_path(drop_path_rate), place(std::move(full_name)) {
  conv_dw = register_module("conv_dw", Affine(std::vector<int64_t>{dim, 1, 7, 7}, true));
  norm = register_module("norm", Affine(std::vector<int64_t>{dim}, true));
  mlp = register_module("mlp", Mlp(dim, options.use_grn));
  if (options.layer_scale_init > 0.0) gamma = register_parameter("gamma", torch::empty({dim}));
}

void BlockImpl::initialise(uint64_t seed, double layer_scale_init) {
  initialise_affine(conv_dw, seed, place + ".conv_dw");
  initialise_norm(norm);
  initialise_affine(mlp->fc1, seed, place + ".mlp.fc1");
  initialise_affine(mlp->fc2, seed, place + ".mlp.fc2");
  if (!mlp->grn.is_empty()) {
    mlp->grn->weight.zero_();
    mlp->grn->bias.zero_();
  }
  if (gamma.defined()) gamma.fill_(layer_scale_init);
}

std::unique_ptr<Backbone> make_convnext(const Options& options) { return std::make_unique<ConvNeXt>(options); }

ModelImpl::ModelImpl(const Options& options, uint64_t seed) : options_(options) {
  const torch::NoGradGuard no_grad;
  backbone_ = options_.is_baseline() ? make_baseline(options_) : make_convnext(options_);
  backbone_->add_to(*this);
  backbone_->initialise(seed);
  const int64_t features = options_.feature_dim(), width = options_.embedding_width(), classes = options_.num_classes;
  auto head = std::make_shared<torch::nn::Module>("head");
  head_norm_ = head->register_module("norm", Affine(std::vector<int64_t>{features}, true));
  initialise_norm(head_norm_);
  if (options_.embedding_dim > 0) {
    embedding_ = register_module("embedding", Affine(std::vector<int64_t>{width, features}, true));
    initialise_affine(embedding_, seed, "embedding");
  }
  if (options_.classifies()) {
    head_fc_ = head->register_module("fc", Affine(std::vector<int64_t>{classes, width}, true));
    initialise_affine(head_fc_, seed, "head.fc");
    head_fc_->weight.mul_(options_.head_init_scale);
  }
  register_module("head", head);
  if (options_.loss == "arcface") {
    arcface_ = register_module("arcface", Affine(std::vector<int64_t>{classes, width}, false));
    xavier_normal(arcface_->weight, seed, "arcface.weight");
  }
  if (options_.loss == "center") {
    centers_ = register_module("centers", Affine(std::vector<int64_t>{classes, width}, false));
    fill_normal(centers_->weight, 1.0, seed, "centers.weight");
  }
}

Encoded ModelImpl::encode(const torch::Tensor& images, task::Context& ctx) {
  const int64_t least = options_.smallest_image();
  if (images.size(2) < least || images.size(3) < least)
    throw DataError(fmt::format("Pictures are {} x {}; {} stages need at least {} x {}. Raise train_ds.image_size.",
                                images.size(2), images.size(3), options_.dims.size(), least, least));
  Encoded out;
  out.features_NHWD = backbone_->features(images, {&ctx, options_.fused_kernels && !ctx.tracing()});
  const torch::Tensor pooled = out.features_NHWD.to(torch::kFloat32).mean({1, 2});
  out.embedding_NE = layer_norm_f32(pooled, head_norm_);
  if (!embedding_.is_empty())
    out.embedding_NE = torch::linear(out.embedding_NE, embedding_->weight, embedding_->bias).to(torch::kFloat32);
  return out;
}

torch::Tensor ModelImpl::logits(const torch::Tensor& embedding_NE) const {
  return torch::linear(embedding_NE, head_fc_->weight, head_fc_->bias).to(torch::kFloat32);
}

}  // namespace redline::models::convnext
