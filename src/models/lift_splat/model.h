// Lift-Splat-Shoot: cameras -> Swin -> neck -> depths and features -> grid -> maps. Parameters and buffers under the
// names of lift-splat-shoot with the Swin segmentation backbone as its trunk.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "models/lift_splat/bev_encoder.h"
#include "models/lift_splat/conv_norm.h"
#include "models/lift_splat/options.h"
#include "models/lift_splat/splat.h"
#include "models/lift_splat/swin.h"
#include "task/batch.h"

namespace redline::models::lift_splat {

// mmseg's pyramid over the last two stages, read at a sixteenth: 1x1 laterals, nearest from the top, a 3x3 on the sum.
struct FpnImpl : torch::nn::Module {
  FpnImpl(int64_t fine, int64_t coarse, int64_t out, const std::string& path, uint64_t seed);
  torch::Tensor forward(const torch::Tensor& coarse_MCHW, const torch::Tensor& fine_MCHW);
  Affine lateral_fine{nullptr}, lateral_coarse{nullptr}, smooth{nullptr};
};
TORCH_MODULE(Fpn);

struct CameraEncoderImpl : torch::nn::Module {
  CameraEncoderImpl(const Options& options, const std::string& path, uint64_t seed);
  struct Out {
    torch::Tensor features_MCHW;  // the last stage's normed map, for others to compare
    torch::Tensor lifted_PK;      // rows of pixels: logits of D depths, then C features
  };
  Out forward(const torch::Tensor& images_MCHW, const Pass& pass);

  Swin trunk{nullptr};
  Up up1{nullptr};    // neck: up
  Fpn neck{nullptr};  // neck: fpn
  Affine depthnet{nullptr};
};
TORCH_MODULE(CameraEncoder);

class ModelImpl : public torch::nn::Module {
 public:
  ModelImpl(const Options& options, uint64_t seed);
  // Maps [B, classes, X, Y]; named outputs go to ctx.
  torch::Tensor forward(const task::Batch& batch, task::Context& ctx);
  // The same in two, for a compiled step: where points fall, and the maps as a pure function of that and the pictures.
  PlanTensors outside(const task::Batch& batch, task::Context& ctx);
  torch::Tensor traced_forward(const torch::Tensor& images, const PlanTensors& plan, task::Context& ctx);

 private:
  torch::Tensor points_of(const task::Batch& batch) const;
  torch::Tensor maps_of(const torch::Tensor& cells, int64_t samples, const Pass& pass);

  Options options_;
  GridTensors grid_;
  torch::Tensor frustum_;
  CameraEncoder camencode_{nullptr};
  BevEncoder bevencode_{nullptr};
};
TORCH_MODULE(Model);

}  // namespace redline::models::lift_splat
