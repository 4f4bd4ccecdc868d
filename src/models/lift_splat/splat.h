// Lift and splat: every pixel of a camera is spread over the depths it may lie at, and what falls into a cell of the
// bird's-eye-view grid is summed (Philion & Fidler 2020). The product of depths and features, D times as large as both
// together, is never made: a cell's sum takes depth times feature directly.
//
// The reference sums by differences of a running total over all points, which loses digits as the total grows; here
// each cell is summed alone, by one thread, in the order of its points: the same bits for any number of threads.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "models/lift_splat/options.h"

namespace redline::models::lift_splat {

// The grid as tensors under lift-splat-shoot's names: steps, centre of the first cell, counts.
struct GridTensors {
  torch::Tensor dx, bx, nx;
};
GridTensors grid_tensors(const GridOptions& grid);
// [D, height / 16, width / 16, 3]: picture coordinates and depth of each point; corners of the picture included.
torch::Tensor make_frustum(const GridOptions& grid, int64_t height, int64_t width, int64_t downsample);

// Calibration of B samples with N cameras each: [B, N, 3, 3] and [B, N, 3].
struct Cameras {
  torch::Tensor rots, trans, intrins, post_rots, post_trans;
};
// Where the frustum's points lie around the car, [B, N, D, h, w, 3], in float32.
torch::Tensor ego_points(const torch::Tensor& frustum, const Cameras& cameras);

// Which points fall into which cell. A point is pixel * D + depth; a cell is ((sample * nx + x) * ny + y) * nz + z.
struct SplatPlan {
  int64_t samples = 0, cameras = 0, depths = 0, pixels = 0, cells = 0;  // pixels of one camera, cells of one sample
  std::vector<int32_t> cell_of;                                         // [points]: -1 outside the grid
  std::vector<int32_t> begin;                                           // [samples * cells + 1]
  std::vector<int32_t> points;                                          // by cell, ascending inside each
  int64_t all_points() const { return static_cast<int64_t>(cell_of.size()); }
};
// As the reference counts: truncated towards zero, so a point up to one cell below the grid belongs to the first cell.
std::shared_ptr<const SplatPlan> make_plan(const torch::Tensor& ego_points, const GridTensors& grid);

// camera [B * N * h * w, D + C]: logits of the depths, then features -> [B * cells, C] in float32.
torch::Tensor lift_splat(const torch::Tensor& camera, std::shared_ptr<const SplatPlan> plan);
// The same by LibTorch's operators, with the product made.
torch::Tensor lift_splat_plain(const torch::Tensor& camera, const SplatPlan& plan);

// The plan's arrays as tensors whose sizes depend on shapes alone, and the splat of a step that is being recorded: an
// operator of our own to whoever compiles it. On the CPU.
struct PlanTensors {
  torch::Tensor cell_of, begin, points;  // int32
};
PlanTensors plan_tensors(const SplatPlan& plan);
torch::Tensor lift_splat_traced(const torch::Tensor& camera, const PlanTensors& plan, int64_t depths);

}  // namespace redline::models::lift_splat
