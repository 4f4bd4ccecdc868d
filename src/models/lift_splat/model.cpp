#include "models/lift_splat/model.h"

namespace redline::models::lift_splat {

namespace {

torch::Tensor channels_first(const torch::Tensor& x_MHWC) { return x_MHWC.permute({0, 3, 1, 2}); }

Affine xavier_conv(int64_t out, int64_t in, int64_t kernel, const std::string& path, uint64_t seed) {
  Affine layer(std::vector<int64_t>{out, in, kernel, kernel}, true);
  xavier_uniform(layer->weight, seed, path + ".weight");
  const torch::NoGradGuard no_grad;
  layer->bias.zero_();
  return layer;
}

}  // namespace

FpnImpl::FpnImpl(int64_t fine, int64_t coarse, int64_t out, const std::string& path, uint64_t seed) {
  auto laterals = register_module("lateral_convs", std::make_shared<torch::nn::Module>());
  auto outputs = register_module("fpn_convs", std::make_shared<torch::nn::Module>());
  const auto add = [&](torch::nn::Module& list, const char* index, Affine layer) {
    list.register_module(index, std::make_shared<torch::nn::Module>())->register_module("conv", layer);
    return layer;
  };
  lateral_fine = add(*laterals, "0", xavier_conv(out, fine, 1, path + ".lateral_convs.0.conv", seed));
  lateral_coarse = add(*laterals, "1", xavier_conv(out, coarse, 1, path + ".lateral_convs.1.conv", seed));
  smooth = add(*outputs, "0", xavier_conv(out, out, 3, path + ".fpn_convs.0.conv", seed));
}

torch::Tensor FpnImpl::forward(const torch::Tensor& coarse_MCHW, const torch::Tensor& fine_MCHW) {
  const torch::Tensor fine = convolve(fine_MCHW, lateral_fine, 1, 0);
  const torch::Tensor top =
      at::upsample_nearest2d(convolve(coarse_MCHW, lateral_coarse, 1, 0), {fine.size(2), fine.size(3)});
  return convolve(fine + top, smooth, 1, 1);
}

CameraEncoderImpl::CameraEncoderImpl(const Options& options, const std::string& path, uint64_t seed) {
  const int64_t fine = options.backbone.width(2), coarse = options.backbone.width(3), out = options.neck_channels;
  trunk = register_module("trunk", Swin(options.backbone, path + ".trunk", seed));
  if (options.neck == "fpn")
    neck = register_module("neck", Fpn(fine, coarse, out, path + ".neck", seed));
  else
    up1 = register_module("up1", Up(fine + coarse, out, 2, path + ".up1", seed));
  depthnet = register_module("depthnet", plain_conv(options.grid.depths() + options.cam_channels, out, 1,
                                                    path + ".depthnet", seed, /*bias=*/true));
}

CameraEncoderImpl::Out CameraEncoderImpl::forward(const torch::Tensor& images_MCHW, const Pass& pass) {
  const SwinImpl::Maps maps = trunk->forward(images_MCHW, *pass.ctx, pass.fused);
  Out out;
  out.features_MCHW = channels_first(maps.stage3_MHWC);
  const torch::Tensor fine = channels_first(maps.stage2_MHWC);
  torch::Tensor x =
      up1.is_empty() ? neck->forward(out.features_MCHW, fine) : up1->forward(out.features_MCHW, fine, pass);
  x = convolve(x, depthnet, 1, 0).permute({0, 2, 3, 1});
  out.lifted_PK = x.reshape({-1, x.size(3)});
  return out;
}

ModelImpl::ModelImpl(const Options& options, uint64_t seed) : options_(options) {
  grid_ = grid_tensors(options.grid);
  grid_.dx = register_buffer("dx", grid_.dx);
  grid_.bx = register_buffer("bx", grid_.bx);
  grid_.nx = register_buffer("nx", grid_.nx);
  frustum_ = register_buffer(
      "frustum", make_frustum(options.grid, options.image_size[0], options.image_size[1], options.downsample()));
  camencode_ = register_module("camencode", CameraEncoder(options, "camencode", seed));
  bevencode_ = register_module(
      "bevencode", BevEncoder(options.cam_channels * options.grid.cells(2), options.num_classes(), "bevencode", seed));
}

torch::Tensor ModelImpl::points_of(const task::Batch& batch) const {
  return ego_points(frustum_, {batch.at("rots"), batch.at("trans"), batch.at("intrins"), batch.at("post_rots"),
                               batch.at("post_trans")});
}

torch::Tensor ModelImpl::maps_of(const torch::Tensor& cells, int64_t samples, const Pass& pass) {
  const int64_t nx = options_.grid.cells(0), ny = options_.grid.cells(1), nz = options_.grid.cells(2);
  // Planes of z are channels side by side: cells already lie that way.
  const torch::Tensor grid_BCXY = channels_first(cells.view({samples, nx, ny, nz * options_.cam_channels}));
  return bevencode_->forward(grid_BCXY, pass).to(torch::kFloat32);
}

torch::Tensor ModelImpl::forward(const task::Batch& batch, task::Context& ctx) {
  const Pass pass{&ctx, options_.fused_kernels};
  const torch::Tensor& images = batch.at("imgs");
  const torch::Tensor points = points_of(batch);
  const auto plan = make_plan(points, grid_);
  const CameraEncoderImpl::Out camera = camencode_->forward(images.flatten(0, 1), pass);
  const torch::Tensor cells =
      options_.fused_kernels ? lift_splat(camera.lifted_PK, plan) : lift_splat_plain(camera.lifted_PK, *plan);
  const torch::Tensor maps = maps_of(cells, images.size(0), pass);
  if (ctx.wants_outputs()) {
    ctx.output("geometry", points);
    ctx.output("camera_features", camera.features_MCHW.to(torch::kFloat32).contiguous());
    ctx.output("preds", maps.contiguous());
  }
  return maps;
}

PlanTensors ModelImpl::outside(const task::Batch& batch, task::Context& ctx) {
  const torch::Tensor points = points_of(batch);
  ctx.output("geometry", points);
  return plan_tensors(*make_plan(points, grid_));
}

torch::Tensor ModelImpl::traced_forward(const torch::Tensor& images, const PlanTensors& plan, task::Context& ctx) {
  const Pass pass{&ctx, /*fused=*/false};
  const CameraEncoderImpl::Out camera = camencode_->forward(images.flatten(0, 1), pass);
  const torch::Tensor cells = lift_splat_traced(camera.lifted_PK, plan, options_.grid.depths());
  const torch::Tensor maps = maps_of(cells, images.size(0), pass);
  if (ctx.wants_outputs()) {
    ctx.output("camera_features", camera.features_MCHW.to(torch::kFloat32).contiguous());
    ctx.output("preds", maps.contiguous());
  }
  return maps;
}

}  // namespace redline::models::lift_splat
