// The models and batches of the Lift-Splat-Shoot step benches: six cameras around the car.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "models/lift_splat/task.h"
#include "task/batch.h"

namespace redline::bench {

inline models::lift_splat::Options lift_splat_options(const std::string& what) {
  models::lift_splat::Options o;
  o.backbone.drop_path_rate = 0.0;
  if (what != "small") return o;
  o.grid.xbound = o.grid.ybound = {-48.0, 48.0, 2.0};
  o.grid.dbound = {4.0, 44.0, 5.0};
  o.image_size = {64, 192};
  o.cam_channels = 16;
  o.neck_channels = 64;
  o.backbone.embed_dim = 24;
  o.backbone.depths = {1, 1, 2, 1};
  o.backbone.num_heads = {1, 2, 4, 8};
  return o;
}

// Six cameras around the car.
inline task::Batch lift_splat_batch(const models::lift_splat::Options& o, int64_t count) {
  const int64_t h = o.image_size[0], w = o.image_size[1], x = o.grid.cells(0), y = o.grid.cells(1);
  task::Batch batch;
  for (int64_t b = 0; b < count; ++b) batch.sample_ids.push_back(b);
  torch::Tensor rots = torch::zeros({count, 6, 3, 3});
  for (int64_t n = 0; n < 6; ++n) {
    const double angle = std::numbers::pi / 3 * static_cast<double>(n);
    const auto s = static_cast<float>(std::sin(angle)), c = static_cast<float>(std::cos(angle));
    rots.select(1, n).copy_(torch::tensor({s, 0.0f, c, -c, 0.0f, s, 0.0f, -1.0f, 0.0f}).view({3, 3}));
  }
  const float scale = static_cast<float>(w) / 1600.0f;
  const auto spread = [&](const torch::Tensor& one, std::vector<int64_t> shape) {
    shape.insert(shape.begin(), {count, 6});
    return one.expand(shape).contiguous();
  };
  batch.tensors["rots"] = rots;
  batch.tensors["trans"] = spread(torch::tensor({1.0f, 0.0f, 1.5f}), {3});
  batch.tensors["intrins"] =
      spread(torch::tensor({1260.0f, 0.0f, 800.0f, 0.0f, 1260.0f, 450.0f, 0.0f, 0.0f, 1.0f}).view({3, 3}), {3, 3});
  batch.tensors["post_rots"] = spread(torch::diag(torch::tensor({scale, scale, 1.0f})), {3, 3});
  batch.tensors["post_trans"] =
      spread(torch::tensor({0.0f, -(0.89f * 900.0f * scale - static_cast<float>(h)), 0.0f}), {3});
  batch.tensors["imgs"] =
      (torch::arange(count * 6 * 3 * h * w, torch::kFloat32) * 0.37).sin().view({count, 6, 3, h, w});
  batch.tensors["binimgs"] =
      torch::arange(count * x * y).remainder(37).lt(2).to(torch::kFloat32).view({count, 1, x, y});
  return batch;
}

}  // namespace redline::bench
