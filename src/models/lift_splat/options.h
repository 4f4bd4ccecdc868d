// The `model` section of a Lift-Splat-Shoot job. Names of the backbone are Swin's, of the grid and the camera
// augmentation lift-splat-shoot's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/fields.h"
#include "data/nuscenes.h"

namespace redline::models::lift_splat {

// Metres around the car: lower bound, upper bound, step. dbound is the depth along a camera's ray.
struct GridOptions {
  std::vector<double> xbound{-50.0, 50.0, 0.5}, ybound{-50.0, 50.0, 0.5}, zbound{-10.0, 10.0, 20.0},
      dbound{4.0, 45.0, 1.0};
  static config::Table<GridOptions> fields();

  int64_t cells(int axis) const;  // x, y, z; truncated, as lift-splat-shoot counts them
  int64_t depths() const;         // as torch.arange counts them
};

// Swin Transformer, the variant for segmentation: maps are padded to whole windows, each used stage has a norm.
struct BackboneOptions {
  int64_t embed_dim = 96;
  std::vector<int64_t> depths{2, 2, 6, 2}, num_heads{3, 6, 12, 24};
  int64_t window_size = 7, patch_size = 4;
  double mlp_ratio = 4.0;
  bool qkv_bias = true, patch_norm = true;
  double drop_path_rate = 0.2;
  bool gradient_checkpointing = false;
  static config::Table<BackboneOptions> fields();

  int64_t stages() const { return static_cast<int64_t>(depths.size()); }
  int64_t width(int64_t stage) const { return embed_dim << stage; }
};

// What is drawn of a run.
struct PictureOptions {
  int64_t pictures_every_n_steps = 1000;
  static config::Table<PictureOptions> fields();
};

struct Options {
  GridOptions grid;
  BackboneOptions backbone;
  std::vector<int64_t> image_size{128, 352};  // height, width
  int64_t cam_channels = 64;
  std::string neck = "up";  // up, fpn
  int64_t neck_channels = 512;
  std::vector<std::string> classes{"vehicle"};
  double pos_weight = 2.13;
  bool fused_kernels = true;
  data::NuscenesOptions nuscenes;
  PictureOptions monitor;

  int64_t downsample() const { return 16; }
  int64_t num_classes() const { return static_cast<int64_t>(classes.size()); }
  // Throws ConfigError for values that contradict each other.
  void check() const;
  // What the data needs to know of the model: grid, picture size, classes.
  data::NuscenesRequest request() const;
  static config::Table<Options> fields();
};

}  // namespace redline::models::lift_splat
