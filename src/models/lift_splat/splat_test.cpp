#include "models/lift_splat/splat.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "models/layers/layer_test_tools.h"

namespace redline::models::lift_splat {
namespace {

using models::testing::expect_same_layer;
using models::testing::largest_difference;
using models::testing::wave;

GridOptions small_grid() {
  GridOptions grid;
  grid.xbound = {-8.0, 8.0, 1.0};
  grid.ybound = {-8.0, 8.0, 2.0};
  grid.zbound = {-2.0, 2.0, 2.0};
  grid.dbound = {1.0, 6.0, 1.0};
  return grid;
}

// B samples of N cameras around the car, D depths, 2 x 3 pixels.
Cameras cameras_around(int64_t samples, int64_t cameras) {
  Cameras c;
  c.rots = torch::zeros({samples, cameras, 3, 3});
  for (int64_t b = 0; b < samples; ++b)
    for (int64_t n = 0; n < cameras; ++n) {
      const double yaw = 1.1 * static_cast<double>(n) + 0.3 * static_cast<double>(b);
      const auto s = static_cast<float>(std::sin(yaw)), k = static_cast<float>(std::cos(yaw));
      c.rots[b][n] = torch::tensor({s, 0.0f, k, -k, 0.0f, s, 0.0f, -1.0f, 0.0f}).view({3, 3});
    }
  c.trans = wave({samples, cameras, 3}, 0.2, torch::kFloat32) * 0.3;
  c.intrins = torch::tensor({20.0f, 0.0f, 16.0f, 0.0f, 20.0f, 12.0f, 0.0f, 0.0f, 1.0f})
                  .view({3, 3})
                  .expand({samples, cameras, 3, 3})
                  .contiguous();
  c.post_rots = torch::eye(3).expand({samples, cameras, 3, 3}).contiguous() * 1.0;
  c.post_trans = torch::zeros({samples, cameras, 3});
  return c;
}

torch::Tensor points_of(int64_t samples, int64_t cameras) {
  return ego_points(make_frustum(small_grid(), 32, 48, 16), cameras_around(samples, cameras));
}

// The reference's own words in tensors: cumulative sums over sorted ranks are replaced by index_add in double.
torch::Tensor pooled_by_reference(const torch::Tensor& camera, const torch::Tensor& points, const GridTensors& grid) {
  const int64_t samples = points.size(0), depths = points.size(2), features = camera.size(1) - depths;
  const torch::Tensor nx = grid.nx;
  const int64_t x = nx[0].item<int64_t>(), y = nx[1].item<int64_t>(), z = nx[2].item<int64_t>();
  const int64_t pixels = points.size(3) * points.size(4);
  const torch::Tensor chances = camera.narrow(1, 0, depths).softmax(1);
  // [views, pixels, D, C] -> the order of the points, [views, D, pixels, C].
  const torch::Tensor lifted = (chances.unsqueeze(2) * camera.narrow(1, depths, features).unsqueeze(1))
                                   .view({-1, pixels, depths, features})
                                   .transpose(1, 2)
                                   .reshape({-1, features});
  const torch::Tensor cell = ((points - (grid.bx - grid.dx / 2.0)) / grid.dx).to(torch::kInt64).view({-1, 3});
  const torch::Tensor sample = torch::arange(samples).repeat_interleave(cell.size(0) / samples);
  const torch::Tensor kept = (cell.ge(0).all(1)).logical_and(cell.lt(nx).all(1)).nonzero().squeeze(1);
  const torch::Tensor flat = ((sample * x + cell.select(1, 0)) * y + cell.select(1, 1)) * z + cell.select(1, 2);
  return torch::zeros({samples * x * y * z, features}, camera.options())
      .index_add(0, flat.index_select(0, kept), lifted.index_select(0, kept));
}

TEST(Splat, EqualsTheReferenceForwardAndBackward) {
  for (const int64_t cameras : {6, 5, 1}) {  // all, one missing, one alone
    const torch::Tensor points = points_of(2, cameras);
    const GridTensors grid = grid_tensors(small_grid());
    const auto plan = make_plan(points, grid);
    ASSERT_GT(plan->points.size(), 0u);
    ASSERT_LT(plan->points.size(), plan->cell_of.size()) << "some points must lie outside";
    const torch::Tensor camera = wave({2 * cameras * 6, 5 + 9}, 0.0, torch::kFloat32);
    expect_same_layer([&](const auto& in) { return std::vector{lift_splat(in[0], plan)}; },
                      [&](const auto& in) { return std::vector{pooled_by_reference(in[0], points, grid)}; }, {camera},
                      2e-6);
    expect_same_layer([&](const auto& in) { return std::vector{lift_splat_plain(in[0], *plan)}; },
                      [&](const auto& in) { return std::vector{pooled_by_reference(in[0], points, grid)}; }, {camera},
                      2e-6);
  }
}

TEST(Splat, GradientsAreFiniteDifferences) {
  const auto plan = make_plan(points_of(1, 3), grid_tensors(small_grid()));
  torch::Tensor camera = wave({3 * 6, 5 + 4}, 0.4, torch::kFloat32).requires_grad_(true);
  const torch::Tensor weights = wave({plan->cells, 4}, 1.0, torch::kFloat64);
  const auto value = [&](const torch::Tensor& x) { return (lift_splat(x, plan).to(torch::kFloat64) * weights).sum(); };
  value(camera).backward();
  const torch::Tensor base = camera.detach();
  for (int64_t i = 0; i < base.numel(); i += 5) {
    const double step = 1e-2;
    torch::Tensor up = base.clone(), down = base.clone();
    up.view({-1})[i] += step;
    down.view({-1})[i] -= step;
    const double slope = (value(up) - value(down)).item<double>() / (2 * step);
    EXPECT_NEAR(camera.grad().view({-1})[i].item<double>(), slope, 2e-3 * (1.0 + std::abs(slope))) << i;
  }
}

// Points at given places, one camera, D depths of one pixel.
std::shared_ptr<const SplatPlan> plan_at(const std::vector<std::array<float, 3>>& places, const GridOptions& grid) {
  torch::Tensor points = torch::empty({1, 1, static_cast<int64_t>(places.size()), 1, 1, 3});
  for (size_t i = 0; i < places.size(); ++i)
    for (int64_t a = 0; a < 3; ++a)
      points.view({-1, 3})[static_cast<int64_t>(i)][a] = places[i][static_cast<size_t>(a)];
  return make_plan(points, grid_tensors(grid));
}

TEST(Splat, BelongsToCellsAsTheReferenceTruncates) {
  const GridOptions grid = small_grid();  // 16 x 8 x 2 cells
  const auto cell = [](int64_t x, int64_t y, int64_t z) { return static_cast<int32_t>((x * 8 + y) * 2 + z); };
  const auto plan = plan_at({{-8.0f, -8.0f, -2.0f},  // the first corner
                             {-8.5f, -9.0f, -3.0f},  // less than a cell below: still the first (truncated towards 0)
                             {-9.0f, 0.0f, 0.0f},    // a whole cell below: outside
                             {7.99f, 7.99f, 1.99f},  // the last cell
                             {8.0f, 0.0f, 0.0f},     // beyond
                             {0.0f, NAN, 0.0f}},
                            grid);
  EXPECT_EQ(plan->cell_of, (std::vector<int32_t>{cell(0, 0, 0), cell(0, 0, 0), -1, cell(15, 7, 1), -1, -1}));
  EXPECT_EQ(plan->points, (std::vector<int32_t>{0, 1, 3}));
}

TEST(Splat, AllPointsInOneCellLoseNoDigits) {
  const int64_t depths = 4000;
  const auto plan =
      plan_at(std::vector<std::array<float, 3>>(static_cast<size_t>(depths), {0.5f, 0.5f, 0.5f}), small_grid());
  torch::Tensor camera = torch::zeros({1, depths + 2});
  camera[0].narrow(0, 0, depths).copy_(wave({depths}, 0.1, torch::kFloat32));
  camera[0][depths] = 1.0f;
  camera[0][depths + 1] = -3.0f;
  const torch::Tensor out = lift_splat(camera, plan);
  // Chances add up to 1, so the cell holds the features themselves; every other cell is empty.
  const int64_t cell = plan->cell_of[0];
  EXPECT_NEAR(out[cell][0].item<double>(), 1.0, 1e-6);
  EXPECT_NEAR(out[cell][1].item<double>(), -3.0, 3e-6);
  EXPECT_EQ(out.abs().gt(0).sum().item<int64_t>(), 2);
}

TEST(Splat, NothingInsideIsAnEmptyGrid) {
  const auto plan = plan_at({{100.0f, 0.0f, 0.0f}, {0.0f, 0.0f, -50.0f}}, small_grid());
  torch::Tensor camera = torch::ones({1, 2 + 3}).requires_grad_(true);
  const torch::Tensor out = lift_splat(camera, plan);
  EXPECT_EQ(out.abs().max().item<double>(), 0.0);
  out.sum().backward();
  EXPECT_EQ(camera.grad().abs().max().item<double>(), 0.0);
}

TEST(Splat, SameBitsForAnyNumberOfThreadsAndAnySplit) {
  const GridTensors grid = grid_tensors(small_grid());
  const torch::Tensor points = points_of(3, 6), camera = wave({3 * 6 * 6, 5 + 20}, 0.7, torch::kFloat32);
  const int before = at::get_num_threads();
  std::vector<torch::Tensor> results, gradients;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    torch::Tensor leaf = camera.clone().requires_grad_(true);
    const torch::Tensor out = lift_splat(leaf, make_plan(points, grid));
    (out * wave(out.sizes().vec(), 0.0, torch::kFloat32)).sum().backward();
    results.push_back(out.detach());
    gradients.push_back(leaf.grad());
  }
  at::set_num_threads(before);
  for (size_t i = 1; i < results.size(); ++i) {
    EXPECT_TRUE(torch::equal(results[0], results[i]));
    EXPECT_TRUE(torch::equal(gradients[0], gradients[i]));
  }
  const int64_t rows = 6 * 6;
  for (int64_t b = 0; b < 3; ++b) {
    const auto plan = make_plan(points.narrow(0, b, 1), grid);
    EXPECT_TRUE(torch::equal(lift_splat(camera.narrow(0, b * rows, rows), plan),
                             results[0].narrow(0, b * plan->cells, plan->cells)));
  }
}

// To the last bit: a point beside a cell's border is in the cell that the reference says. The products here are stored
// before they are summed, so that no compiler fuses them.
TEST(Geometry, HasTheBitsOfSumsInOrder) {
  Cameras c = cameras_around(2, 3);
  c.rots = c.rots + 0.01 * wave({2, 3, 3, 3}, 0.7, torch::kFloat32);
  c.post_rots = 0.22 * c.post_rots + 0.03 * wave({2, 3, 3, 3}, 0.4, torch::kFloat32);
  c.post_trans = 5.0 * wave({2, 3, 3}, 0.9, torch::kFloat32);
  const torch::Tensor frustum = make_frustum(small_grid(), 64, 96, 16), found = ego_points(frustum, c);
  const torch::Tensor undo = torch::inverse(c.post_rots).contiguous(),
                      turn = c.rots.matmul(torch::inverse(c.intrins)).contiguous();
  const auto times = [](const torch::Tensor& m, int64_t view, const float* v, float* r) {
    const float* row = m.const_data_ptr<float>() + 9 * view;
    for (int i = 0; i < 3; ++i, row += 3) {
      float sum = 0.0f;
      for (int j = 0; j < 3; ++j) {
        const volatile float product = row[j] * v[j];
        sum += product;
      }
      r[i] = sum;
    }
  };
  const int64_t count = frustum.numel() / 3;
  int64_t different = 0;
  for (int64_t view = 0; view < 6; ++view)
    for (int64_t i = 0; i < count; ++i) {
      float moved[3], picture[3], car[3];
      for (int axis = 0; axis < 3; ++axis)
        moved[axis] =
            frustum.const_data_ptr<float>()[3 * i + axis] - c.post_trans.const_data_ptr<float>()[3 * view + axis];
      times(undo, view, moved, picture);
      picture[0] *= picture[2];
      picture[1] *= picture[2];
      times(turn, view, picture, car);
      for (int axis = 0; axis < 3; ++axis) {
        const float there = car[axis] + c.trans.const_data_ptr<float>()[3 * view + axis];
        different += there != found.const_data_ptr<float>()[3 * (view * count + i) + axis] ? 1 : 0;
      }
    }
  EXPECT_EQ(different, 0) << "of " << found.numel();
}

TEST(Geometry, EqualsMatrixProducts) {
  const Cameras c = cameras_around(2, 3);
  const torch::Tensor frustum = make_frustum(small_grid(), 32, 48, 16);
  EXPECT_EQ(frustum.sizes(), (std::vector<int64_t>{5, 2, 3, 3}));
  EXPECT_EQ(frustum[0][1][2][0].item<float>(), 47.0f) << "the last column is the last pixel";
  torch::Tensor p = frustum.to(torch::kFloat64) - c.post_trans.view({2, 3, 1, 1, 1, 3});
  p = torch::inverse(c.post_rots.to(torch::kFloat64)).view({2, 3, 1, 1, 1, 3, 3}).matmul(p.unsqueeze(-1)).squeeze(-1);
  p = torch::cat({p.narrow(-1, 0, 2) * p.narrow(-1, 2, 1), p.narrow(-1, 2, 1)}, -1);
  const torch::Tensor turn = c.rots.to(torch::kFloat64).matmul(torch::inverse(c.intrins.to(torch::kFloat64)));
  p = turn.view({2, 3, 1, 1, 1, 3, 3}).matmul(p.unsqueeze(-1)).squeeze(-1) + c.trans.view({2, 3, 1, 1, 1, 3});
  EXPECT_LE(largest_difference(ego_points(frustum, c), p), 1e-6);
  Cameras flat = c;
  flat.intrins = torch::zeros({2, 3, 3, 3});
  EXPECT_ANY_THROW(ego_points(frustum, flat));
}

}  // namespace
}  // namespace redline::models::lift_splat
