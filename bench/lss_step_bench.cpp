// Forward + backward of Lift-Splat-Shoot at fixed input, without data, optimiser or recording; or of the splat alone
// (softmax of the depths included). The peer is bench/lss/peer_step.py with the same input. Arguments:
// small|swin_t|splat BATCH STEPS THREADS [FUSED].
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>

#include "core/time.h"
#include "models/lift_splat/task.h"
#include "models/lift_splat/work_estimate.h"

namespace redline::bench {
namespace {

using namespace models::lift_splat;

Options options_of(const std::string& what) {
  Options o;
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
task::Batch batch_of(const Options& o, int64_t count) {
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

// What LibTorch's own products reach with these threads, as a share's other side.
double product_rate() {
  const torch::Tensor a = torch::rand({2048, 2048}), b = torch::rand({2048, 2048});
  torch::Tensor out = torch::empty({2048, 2048});
  at::mm_out(out, a, b);
  double best = 1e9;
  for (int repeat = 0; repeat < 8; ++repeat) {
    const int64_t begin = now_ns();
    at::mm_out(out, a, b);
    best = std::min(best, seconds_between(begin, now_ns()));
  }
  return 2.0 * 2048.0 * 2048.0 * 2048.0 / best * 1e-9;
}

int run(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "small";
  const auto number = [&](int index, int64_t fallback) { return argc > index ? std::atoll(argv[index]) : fallback; };
  const int64_t count = number(2, 2), steps = number(3, 3);
  at::set_num_threads(static_cast<int>(number(4, 2)));
  Options options = options_of(what);
  options.fused_kernels = number(5, 1) != 0;
  LiftSplatTask task(options, 1);
  {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& p : task.module().parameters())
      if (p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
  }
  const task::Batch batch = batch_of(options, count);
  const torch::Tensor frustum = make_frustum(options.grid, options.image_size[0], options.image_size[1], 16);
  const torch::Tensor points = ego_points(frustum, {batch.at("rots"), batch.at("trans"), batch.at("intrins"),
                                                    batch.at("post_rots"), batch.at("post_trans")});
  const GridTensors grid = grid_tensors(options.grid);
  const int64_t depths = options.grid.depths(), pixels = frustum.size(1) * frustum.size(2);
  torch::Tensor camera = (torch::arange(count * 6 * pixels * (depths + options.cam_channels), torch::kFloat32) * 0.11)
                             .sin()
                             .view({count * 6 * pixels, depths + options.cam_channels})
                             .requires_grad_(true);
  const auto step = [&](int64_t index) {
    if (what == "splat") {
      camera.mutable_grad().reset();
      const auto plan = make_plan(points, grid);  // sorting is part of it
      (options.fused_kernels ? lift_splat(camera, plan) : lift_splat_plain(camera, *plan)).sum().backward();
      return;
    }
    task.module().zero_grad();
    task::Context ctx(1, index, true, batch.sample_ids);
    task.loss(batch, ctx).value.backward();
  };
  step(0);
  std::vector<double> times;
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t begin = now_ns();
    step(i + 1);
    times.push_back(seconds_between(begin, now_ns()));
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const double flops = what == "splat" ? 0.0 : static_cast<double>(count) * sample_flops(options, 6);
  if (what == "splat") {
    fmt::print("{{\"step_ms\": {:.3f}}}\n", 1e3 * median);
    return 0;
  }
  const double made = product_flops(options, count, 6) / median * 1e-9, rate = product_rate();
  fmt::print(
      "{{\"step_ms\": {:.3f}, \"gflops\": {:.1f}, \"product_gflops\": {:.1f}, \"gemm_gflops\": {:.1f}, "
      "\"share_of_gemm_rate\": {:.3f}, \"gemm_over_made\": {:.3f}}}\n",
      1e3 * median, flops / median * 1e-9, made, rate, made / rate, rate / made);
  return 0;
}

}  // namespace
}  // namespace redline::bench

int main(int argc, char** argv) { return redline::bench::run(argc, argv); }
