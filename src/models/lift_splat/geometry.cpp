#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cmath>

#include "core/error.h"
#include "models/lift_splat/splat.h"

namespace redline::models::lift_splat {

GridTensors grid_tensors(const GridOptions& grid) {
  GridTensors out{torch::empty({3}), torch::empty({3}), torch::empty({3}, torch::kInt64)};
  for (int axis = 0; axis < 3; ++axis) {
    const std::vector<double>& bound = axis == 0 ? grid.xbound : axis == 1 ? grid.ybound : grid.zbound;
    out.dx[axis] = static_cast<float>(bound[2]);
    out.bx[axis] = static_cast<float>(bound[0] + bound[2] / 2.0);
    out.nx[axis] = grid.cells(axis);
  }
  return out;
}

torch::Tensor make_frustum(const GridOptions& grid, int64_t height, int64_t width, int64_t downsample) {
  const int64_t rows = height / downsample, columns = width / downsample;
  const torch::Tensor depths = torch::arange(grid.dbound[0], grid.dbound[1], grid.dbound[2], torch::kFloat32);
  const int64_t count = depths.size(0);
  const torch::Tensor across = torch::linspace(0, static_cast<double>(width - 1), columns, torch::kFloat32);
  const torch::Tensor down = torch::linspace(0, static_cast<double>(height - 1), rows, torch::kFloat32);
  return torch::stack({across.view({1, 1, columns}).expand({count, rows, columns}),
                       down.view({1, rows, 1}).expand({count, rows, columns}),
                       depths.view({count, 1, 1}).expand({count, rows, columns})},
                      -1)
      .contiguous();
}

torch::Tensor ego_points(const torch::Tensor& frustum, const Cameras& cameras) {
  const torch::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto host = [](const torch::Tensor& x) { return x.to(torch::kCPU, torch::kFloat32).contiguous(); };
  const torch::Tensor undo = torch::inverse(host(cameras.post_rots)).contiguous();
  const torch::Tensor combine = host(cameras.rots).matmul(torch::inverse(host(cameras.intrins))).contiguous();
  if (!undo.isfinite().all().item<bool>() || !combine.isfinite().all().item<bool>())
    throw DataError("A camera's intrinsic matrix or picture transform cannot be inverted: check its calibration.");
  // The reference's own operators, not a loop: which cell a point falls into is decided by its last bit, and at half a
  // metre a batch has a point or two that a product and a sum fused by the compiler put into the neighbouring cell.
  const int64_t samples = undo.size(0), views = undo.size(1);
  const auto matrices = [&](const torch::Tensor& m) { return m.view({samples, views, 1, 1, 1, 3, 3}); };
  const auto places = [&](const torch::Tensor& x) { return host(x).view({samples, views, 1, 1, 1, 3}); };
  torch::Tensor p = matrices(undo).matmul((host(frustum) - places(cameras.post_trans)).unsqueeze(-1)).squeeze(-1);
  const torch::Tensor depth = p.narrow(-1, 2, 1);
  p = torch::cat({p.narrow(-1, 0, 2) * depth, depth}, -1);
  return matrices(combine).matmul(p.unsqueeze(-1)).squeeze(-1) + places(cameras.trans);
}

std::shared_ptr<const SplatPlan> make_plan(const torch::Tensor& ego_points, const GridTensors& grid) {
  const torch::Tensor points = ego_points.to(torch::kCPU).contiguous();
  const torch::Tensor step = grid.dx.to(torch::kCPU), lower = (grid.bx.to(torch::kCPU) - step / 2.0f).contiguous(),
                      counts = grid.nx.to(torch::kCPU);
  const float *d = step.const_data_ptr<float>(), *low = lower.const_data_ptr<float>();
  const int64_t* n = counts.const_data_ptr<int64_t>();
  auto plan = std::make_shared<SplatPlan>();
  plan->samples = points.size(0);
  plan->cameras = points.size(1);
  plan->depths = points.size(2);
  plan->pixels = points.size(3) * points.size(4);
  plan->cells = n[0] * n[1] * n[2];
  if (points.numel() / 3 >= INT32_MAX || plan->samples * plan->cells >= INT32_MAX)
    throw DataError("The batch has more than 2^31 points or cells; use a smaller micro_batch_size or a coarser grid.");
  plan->cell_of.resize(static_cast<size_t>(points.numel() / 3));
  plan->begin.assign(static_cast<size_t>(plan->samples * plan->cells + 1), 0);
  const float* at = points.const_data_ptr<float>();
  for (int64_t view = 0; view < plan->samples * plan->cameras; ++view)
    for (int64_t depth = 0; depth < plan->depths; ++depth)
      for (int64_t pixel = 0; pixel < plan->pixels; ++pixel, at += 3) {
        int64_t place[3];
        bool inside = true;
        for (int axis = 0; axis < 3; ++axis) {
          const float cell = (at[axis] - low[axis]) / d[axis];
          inside = inside && cell > -1.0f && cell < static_cast<float>(n[axis]);
          place[axis] = inside ? static_cast<int64_t>(cell) : 0;
        }
        const int64_t point = (view * plan->pixels + pixel) * plan->depths + depth;
        int32_t& cell = plan->cell_of[static_cast<size_t>(point)];
        cell =
            inside
                ? static_cast<int32_t>((((view / plan->cameras) * n[0] + place[0]) * n[1] + place[1]) * n[2] + place[2])
                : -1;
        if (inside) ++plan->begin[static_cast<size_t>(cell) + 1];
      }
  // A counting sort: points of a cell stay in ascending order.
  for (size_t i = 1; i < plan->begin.size(); ++i) plan->begin[i] += plan->begin[i - 1];
  plan->points.resize(static_cast<size_t>(plan->begin.back()));
  std::vector<int32_t> next(plan->begin.begin(), plan->begin.end() - 1);
  for (size_t point = 0; point < plan->cell_of.size(); ++point)
    if (const int32_t cell = plan->cell_of[point]; cell >= 0)
      plan->points[static_cast<size_t>(next[static_cast<size_t>(cell)]++)] = static_cast<int32_t>(point);
  return plan;
}

}  // namespace redline::models::lift_splat
