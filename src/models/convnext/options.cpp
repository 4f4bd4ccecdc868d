#include "models/convnext/options.h"

#include <fmt/format.h>

#include "core/error.h"

namespace redline::models::convnext {

using config::Effect;

namespace {

void add_backbone_rows(config::Table<Options>& t) {
  t.add("arch", &Options::arch, "ConvNeXt, or a plain convolutional network that is faster.")
      .choices({"convnext", "baseline"})
      .flag("arch")
      .effect(Effect::Model);
  t.add("in_channels", &Options::in_channels, "Channels of a picture: 3, or 1 for grey ones.")
      .at_least(1)
      .effect(Effect::Model);
  t.add("image_size", &Options::image_size,
        "Height and width assumed where work and memory are estimated; set train_ds.image_size to it.")
      .unit("pixels")
      .at_least(1);
  t.add("num_classes", &Options::num_classes, "Classes; labels are 0 to num_classes - 1.")
      .at_least(1)
      .flag("num_classes")
      .effect(Effect::Model);
  t.add("depths", &Options::depths, "Blocks of each stage; empty: num_blocks each.").at_least(1).effect(Effect::Model);
  t.add("dims", &Options::dims, "Channels of each stage; empty: base_channels x 1, 2, 4, 8.")
      .at_least(1)
      .effect(Effect::Model);
  t.add("base_channels", &Options::base_channels,
        "Channels of the first stage where dims is empty, and of the baseline.")
      .at_least(1)
      .flag("base_channels")
      .effect(Effect::Model);
  t.add("num_blocks", &Options::num_blocks,
        "Blocks of each stage where depths is empty; the baseline's layers, each half the size of the one before.")
      .at_least(1)
      .flag("num_blocks")
      .effect(Effect::Model);
  t.add("layer_scale_init", &Options::layer_scale_init, "First value of each block's layer scale; 0: none.")
      .at_least(0.0)
      .effect(Effect::Model);
  t.add("drop_path_rate", &Options::drop_path_rate,
        "Stochastic depth of the last block; the first has none, those between in equal steps.")
      .range(0.0, 0.99)
      .effect(Effect::Optimisation);
  t.add("head_init_scale", &Options::head_init_scale, "Multiplies the first weights of the classifier.").at_least(0.0);
  t.add("use_grn", &Options::use_grn, "Global response normalisation in the blocks (ConvNeXt V2).")
      .effect(Effect::Model);
  t.add("gradient_checkpointing", &Options::gradient_checkpointing,
        "Keep of a block only its input and compute it again in backward: less memory for about a third more time, and "
        "the same numbers.")
      .effect(Effect::Nothing)
      .alias(".gradient_checkpointing");
  t.add("fused_kernels", &Options::fused_kernels, "This project's own kernels; off: LibTorch's operators.")
      .effect(Effect::Numerics)
      .tunable();
}

void add_head_rows(config::Table<Options>& t) {
  t.add("embedding_dim", &Options::embedding_dim,
        "Width of a linear layer that makes the embedding; 0: the pooled and normalised features are the embedding.")
      .at_least(0)
      .effect(Effect::Model);
  t.add("normalize_embedding", &Options::normalize_embedding,
        "Embeddings of unit length, where they are predicted and where losses compare them (supcon and arcface do so "
        "always).")
      .effect(Effect::Model);
  t.add("loss", &Options::loss,
        "cross_entropy; center: cross-entropy and the distance to each class's centre; supcon: supervised contrastive; "
        "triplet; arcface.")
      .choices({"cross_entropy", "center", "supcon", "triplet", "arcface"})
      .effect(Effect::Model);
  t.add("label_smoothing", &Options::label_smoothing,
        "cross_entropy, center, arcface: share of the target spread over all classes.")
      .range(0.0, 0.99)
      .effect(Effect::Optimisation);
  t.add("temperature", &Options::temperature, "supcon: similarities are divided by it.").above(0.0);
  t.add("base_temperature", &Options::base_temperature, "supcon: the loss is multiplied by temperature over this.")
      .above(0.0);
  t.add("triplet_margin", &Options::triplet_margin, "triplet: how much nearer the positive should be.").at_least(0.0);
  t.add("triplet_mining", &Options::triplet_mining,
        "triplet: the furthest positive and the nearest negative of each anchor, or all that are there.")
      .choices({"batch_hard", "batch_all"});
  t.add("arcface_scale", &Options::arcface_scale, "arcface: cosines are multiplied by it.").above(0.0);
  t.add("arcface_margin", &Options::arcface_margin, "arcface: angle added to the right class's.")
      .unit("radians")
      .range(0.0, 1.5);
  t.add("center_weight", &Options::center_weight, "center: weight of the distance to the centres.").at_least(0.0);
}

}  // namespace

config::Table<Options> Options::fields() {
  config::Table<Options> t;
  add_backbone_rows(t);
  add_head_rows(t);
  t.group("monitor", &Options::monitor);
  return t;
}

void Options::complete() {
  if (is_baseline()) {
    if (use_grn) throw ConfigError("model.use_grn is for arch convnext; model.arch is baseline.");
    return;
  }
  if (depths.empty()) depths.assign(dims.empty() ? 4 : dims.size(), num_blocks);
  if (dims.empty())
    for (size_t s = 0; s < depths.size(); ++s) dims.push_back(base_channels << s);
  if (depths.size() != dims.size())
    throw ConfigError(fmt::format("model.depths has {} stages and model.dims {}; give one number per stage in both.",
                                  depths.size(), dims.size()));
}

int64_t Options::feature_dim() const {
  return is_baseline() ? base_channels << std::min<int64_t>(num_blocks - 1, 3) : dims.back();
}

int64_t Options::smallest_image() const { return is_baseline() ? 1 : int64_t{4} << (dims.size() - 1); }

}  // namespace redline::models::convnext
