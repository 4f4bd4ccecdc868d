#include "models/lift_splat/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "core/error.h"

namespace redline::models::lift_splat {

using config::Effect;

namespace {

constexpr int64_t kMostBoxes = 64;  // drawn of a sample, the nearest ones

void check_bound(const char* name, const std::vector<double>& bound) {
  if (bound.size() != 3 || !(bound[2] > 0.0) || !(bound[1] > bound[0]) || (bound[1] - bound[0]) / bound[2] > 65536.0)
    throw ConfigError(fmt::format(
        "model.grid.{} is [{}]; expected [lower, upper, step] with lower < upper, a step above 0 and at most 65,536 "
        "cells.",
        name, fmt::join(bound, ", ")));
}

}  // namespace

int64_t GridOptions::cells(int axis) const {
  const std::vector<double>& bound = axis == 0 ? xbound : axis == 1 ? ybound : zbound;
  return static_cast<int64_t>((bound[1] - bound[0]) / bound[2]);
}

int64_t GridOptions::depths() const { return static_cast<int64_t>(std::ceil((dbound[1] - dbound[0]) / dbound[2])); }

config::Table<GridOptions> GridOptions::fields() {
  config::Table<GridOptions> t;
  const auto add = [&](const char* name, std::vector<double> GridOptions::*member, const char* sentence) {
    t.add(name, member, sentence).unit("metres").effect(Effect::Model);
  };
  add("xbound", &GridOptions::xbound, "Grid ahead of the car: [lower, upper, step].");
  add("ybound", &GridOptions::ybound, "Grid to its left: [lower, upper, step].");
  add("zbound", &GridOptions::zbound, "Grid upwards; each step is a plane of channels of its own.");
  add("dbound", &GridOptions::dbound, "Depths that a pixel may lie at: [first, end, step], the end left out.");
  return t;
}

config::Table<BackboneOptions> BackboneOptions::fields() {
  using B = BackboneOptions;
  config::Table<B> t;
  t.add("embed_dim", &B::embed_dim, "Width of the first stage; each further one has twice the width.")
      .at_least(1)
      .effect(Effect::Model);
  t.add("depths", &B::depths, "Blocks of each stage.").effect(Effect::Model);
  t.add("num_heads", &B::num_heads, "Attention heads of each stage.").effect(Effect::Model);
  t.add("window_size", &B::window_size, "Side of an attention window.")
      .unit("patches")
      .range(2, 64)
      .effect(Effect::Model);
  t.add("patch_size", &B::patch_size, "Side of a patch.").unit("pixels").range(1, 64).effect(Effect::Model);
  t.add("mlp_ratio", &B::mlp_ratio, "Width inside the feed-forward blocks, as a multiple.")
      .above(0.0)
      .effect(Effect::Model);
  t.add("qkv_bias", &B::qkv_bias, "Queries, keys and values have a bias.").effect(Effect::Model);
  t.add("patch_norm", &B::patch_norm, "LayerNorm after the patch embedding.").effect(Effect::Model);
  t.add("drop_path_rate", &B::drop_path_rate,
        "Stochastic depth of the last block; earlier ones have less, in proportion.")
      .range(0.0, 0.99)
      .effect(Effect::Optimisation);
  t.add("gradient_checkpointing", &B::gradient_checkpointing,
        "Keep of a block only its input and compute it again in backward: less memory for about a third more time, and "
        "the same numbers.")
      .effect(Effect::Nothing)
      .alias(".gradient_checkpointing")
      .alias("use_checkpoint")
      .alias("with_cp");
  t.accept("type", {"SwinTransformer"}, "this backbone is the only one");
  t.accept("ape", {"false"}, "absolute positions are not supported");
  t.accept("drop_rate", {"0", "0.0"}, "dropout of tokens is not supported; see drop_path_rate");
  t.accept("attn_drop_rate", {"0", "0.0"}, "dropout of attention weights is not supported; see drop_path_rate");
  t.accept("qk_scale", {"null"}, "queries are scaled by the root of the head's width");
  return t;
}

config::Table<PictureOptions> PictureOptions::fields() {
  config::Table<PictureOptions> t;
  t.about("Pictures of a training and a validation sample: the map over what is there, and the cameras with boxes.");
  t.add("pictures_every_n_steps", &PictureOptions::pictures_every_n_steps,
        "Steps between two pictures in the run's plots folder; 0 for none.")
      .at_least(0)
      .cadence(config::Counts::Steps)
      .effect(Effect::Nothing)
      .flag("pictures_every_n_steps");
  return t;
}

config::Table<Options> Options::fields() {
  config::Table<Options> t;
  t.group("grid", &Options::grid, "The bird's-eye-view grid.");
  t.group("backbone", &Options::backbone, "The Swin Transformer that reads the cameras.");
  t.add("image_size", &Options::image_size, "Height and width that camera pictures are made.")
      .unit("pixels")
      .effect(Effect::Model);
  t.add("cam_channels", &Options::cam_channels, "Channels that a camera hands to the grid.")
      .at_least(1)
      .effect(Effect::Model);
  t.add("neck", &Options::neck,
        "up: the last stage is enlarged onto the one before it and mixed (lift-splat-shoot); fpn: mmseg's pyramid.")
      .choices({"up", "fpn"})
      .effect(Effect::Model);
  t.add("neck_channels", &Options::neck_channels, "Channels after the neck.").at_least(1).effect(Effect::Model);
  t.add("classes", &Options::classes, "What is drawn on the grid, one map each: first words of nuScenes categories.")
      .effect(Effect::Model);
  t.add("pos_weight", &Options::pos_weight, "Weight of occupied cells in the loss.")
      .above(0.0)
      .effect(Effect::Optimisation);
  t.add("fused_kernels", &Options::fused_kernels,
        "The kernels of this program where they fit; false: LibTorch's operators one by one.")
      .effect(Effect::Numerics);
  t.group("nuscenes", &Options::nuscenes, "Which scenes, and how camera pictures vary in training.");
  t.group("monitor", &Options::monitor);
  return t;
}

void Options::check() const {
  const auto fail = [](const std::string& sentence) { throw ConfigError(sentence); };
  check_bound("xbound", grid.xbound);
  check_bound("ybound", grid.ybound);
  check_bound("zbound", grid.zbound);
  check_bound("dbound", grid.dbound);
  if (image_size.size() != 2 || image_size[0] < 32 || image_size[1] < 32 || image_size[0] > 8192 ||
      image_size[1] > 8192)
    fail(fmt::format("model.image_size is [{}]; expected [height, width], both from 32 to 8,192.",
                     fmt::join(image_size, ", ")));
  if (image_size[0] % 32 != 0 || image_size[1] % 32 != 0)
    fail(fmt::format(
        "model.image_size is [{}]; both sides must be multiples of 32: the last stage's map is doubled onto the one "
        "before it. The nearest that fit are [{}, {}].",
        fmt::join(image_size, ", "), (image_size[0] + 16) / 32 * 32, (image_size[1] + 16) / 32 * 32));
  for (const auto& [axis, name] : {std::pair{0, "xbound"}, std::pair{1, "ybound"}})
    if (grid.cells(axis) % 8 != 0 || grid.cells(axis) < 8)
      fail(fmt::format(
          "model.grid.{} makes {} cells; both sides of the grid must be multiples of 8: an eighth of it is enlarged "
          "by 4 onto its half.",
          name, grid.cells(axis)));
  const BackboneOptions& b = backbone;
  if (b.stages() != 4 || b.num_heads.size() != b.depths.size())
    fail(fmt::format("model.backbone has {} depths and {} num_heads; expected four of each, one per stage.",
                     b.depths.size(), b.num_heads.size()));
  if (b.patch_size != 4)
    fail(fmt::format("model.backbone.patch_size is {}; the neck expects maps at a sixteenth, which takes patches of 4.",
                     b.patch_size));
  for (int64_t s = 0; s < b.stages(); ++s) {
    const auto i = static_cast<size_t>(s);
    if (b.depths[i] < 1 || b.num_heads[i] < 1 || b.width(s) % b.num_heads[i] != 0)
      fail(fmt::format(
          "model.backbone: stage {} has {} blocks, width {} and {} heads; the width must be a multiple of the heads, "
          "and both counts at least 1.",
          s, b.depths[i], b.width(s), b.num_heads[i]));
  }
  if (classes.empty()) fail("model.classes is empty; name at least one, e.g. [vehicle].");
  nuscenes.check();
}

data::NuscenesRequest Options::request() const {
  return {grid.xbound,   grid.ybound, image_size[0],
          image_size[1], classes,     monitor.pictures_every_n_steps > 0 ? kMostBoxes : 0};
}

}  // namespace redline::models::lift_splat
