// Forward + backward of Lift-Splat-Shoot at fixed input, without data, optimiser or recording; or of the splat alone
// (softmax of the depths included). The peer is bench/lss/peer_step.py with the same input. Arguments:
// small|swin_t|splat BATCH STEPS THREADS [FUSED].
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/time.h"
#include "lss/step_input.h"
#include "models/lift_splat/task.h"
#include "models/lift_splat/work_estimate.h"

namespace redline::bench {
namespace {

using namespace models::lift_splat;

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
  Options options = lift_splat_options(what);
  options.fused_kernels = number(5, 1) != 0;
  LiftSplatTask task(options, 1);
  {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& p : task.module().parameters())
      if (p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
  }
  const task::Batch batch = lift_splat_batch(options, count);
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
