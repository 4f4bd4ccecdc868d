// The `model` section of an image embedding job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/fields.h"
#include "models/convnext/embedding/options.h"

namespace redline::models::convnext {

// The losses' own numbers; which of them count is said by Options::loss.
struct LossOptions {
  double label_smoothing = 0.0;
  double temperature = 0.07, base_temperature = 0.07;  // supcon
  double triplet_margin = 0.2;
  std::string triplet_mining = "batch_hard";  // batch_hard, batch_all
  double arcface_scale = 64.0, arcface_margin = 0.5;
  double center_weight = 0.01;
};

struct Options : LossOptions {
  std::string arch = "convnext";  // convnext, baseline
  int64_t in_channels = 3, image_size = 224, num_classes = 1000;
  // Of each stage; empty: base_channels x {1, 2, 4, 8}, num_blocks each. The baseline has num_blocks layers in all.
  std::vector<int64_t> depths, dims;
  int64_t base_channels = 64, num_blocks = 4;
  double layer_scale_init = 1e-6;  // 0: no layer scale (ConvNeXt V2)
  double drop_path_rate = 0.0;
  double head_init_scale = 1.0;
  bool use_grn = false;
  int64_t embedding_dim = 0;  // 0: the pooled and normalised features themselves
  bool normalize_embedding = false;
  std::string loss = "cross_entropy";
  bool fused_kernels = true;
  bool gradient_checkpointing = false;
  embedding::EmbeddingOptions monitor;

  bool is_baseline() const { return arch == "baseline"; }
  bool classifies() const { return loss == "cross_entropy" || loss == "center"; }
  bool looks_across_batch() const { return loss == "supcon" || loss == "triplet"; }
  // Fills depths and dims where they are empty and throws ConfigError for values that contradict each other.
  void complete();
  int64_t feature_dim() const;  // channels after the last stage; after complete()
  int64_t embedding_width() const { return embedding_dim > 0 ? embedding_dim : feature_dim(); }
  int64_t smallest_image() const;  // height and width below which a layer has nothing left to see
  static config::Table<Options> fields();
};

}  // namespace redline::models::convnext
