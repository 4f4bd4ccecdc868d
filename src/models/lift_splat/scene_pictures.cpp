#include "models/lift_splat/scene_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "draw/canvas.h"

namespace redline::models::lift_splat {

namespace {

using draw::Color;
constexpr Color kSceneInk{31, 41, 55}, kSceneQuiet{107, 114, 128}, kHit{22, 163, 74}, kMiss{37, 99, 235},
    kFalseAlarm{234, 88, 12}, kCar{17, 24, 39}, kBoxFront{250, 204, 21}, kBoxRest{34, 211, 238};
constexpr double kHead = 40, kFoot = 24, kGap = 8;  // pixels: one point is one pixel
constexpr double kGridSide = 480;
constexpr int64_t kWidestView = 480;
constexpr double kNear = 0.5;                            // metres in front of a camera
constexpr double kCarLength = 4.084, kCarWidth = 1.730;  // the Renault Zoe that drove nuScenes

std::string png_of(double width, double height, const std::string& title,
                   const std::function<void(draw::Canvas&)>& body) {
  const std::unique_ptr<draw::Canvas> canvas = draw::make_png(width, height, /*scale=*/1);
  canvas->text({kGap, 20}, title, {15, kSceneInk, draw::Anchor::Start, true});
  body(*canvas);
  return canvas->finish();
}

struct GridPicture {
  const float *chance, *truth;
  int64_t rows, columns;
  const GridOptions& grid;
  double left, top, cell;
  double x_of(double y_metres) const {  // left of the car is left
    return left + cell * (static_cast<double>(columns) - (y_metres - grid.ybound[0]) / grid.ybound[2]);
  }
  double y_of(double x_metres) const {
    return top + cell * (static_cast<double>(rows) - (x_metres - grid.xbound[0]) / grid.xbound[2]);
  }
};

double draw_cells(draw::Canvas& canvas, const GridPicture& p) {
  double hits = 0, either = 0;
  for (int64_t i = 0; i < p.rows; ++i)
    for (int64_t j = 0; j < p.columns; ++j) {
      const float chance = p.chance[i * p.columns + j];
      const bool there = p.truth[i * p.columns + j] > 0.5f, said = chance > 0.5f;
      hits += there && said ? 1 : 0;
      either += there || said ? 1 : 0;
      Color color = there ? (said ? kHit : kMiss) : kFalseAlarm;
      // What is only thought possible is a shade of a false alarm.
      if (!there && !said) color.opacity = 0.6 * static_cast<double>(chance);
      if (!there && !said && chance < 0.02f) continue;
      canvas.rectangle({p.left + p.cell * static_cast<double>(p.columns - 1 - j),
                        p.top + p.cell * static_cast<double>(p.rows - 1 - i)},
                       p.cell, p.cell, color);
    }
  return either > 0 ? hits / either : 1.0;
}

void draw_frame(draw::Canvas& canvas, double left, double top, double width, double height) {
  canvas.path({{left, top}, {left + width, top}, {left + width, top + height}, {left, top + height}, {left, top}}, 1,
              kSceneQuiet);
}

// Shades of a picture stretched to what it holds: the normalisation is the data's own affair.
struct ViewPixels {
  explicit ViewPixels(const torch::Tensor& image_CHW)
      : values(image_CHW.contiguous()), height(values.size(1)), width(values.size(2)) {
    low = values.amin({1, 2}).contiguous();
    const torch::Tensor range = (values.amax({1, 2}) - low).clamp_min(1e-6);
    scale = (255.0 / range).contiguous();
  }
  // Mean over the square of `step` pixels that begins there.
  Color at(int64_t y, int64_t x, int64_t step) const {
    const float* from = values.const_data_ptr<float>();
    std::array<double, 3> sum{};
    int64_t count = 0;
    for (int64_t i = y; i < std::min(height, y + step); ++i)
      for (int64_t j = x; j < std::min(width, x + step); ++j, ++count)
        for (size_t c = 0; c < 3; ++c) sum[c] += from[(static_cast<int64_t>(c) * height + i) * width + j];
    std::array<uint8_t, 3> shade{};
    for (size_t c = 0; c < 3; ++c) {
      const double value = (sum[c] / static_cast<double>(count) - low.const_data_ptr<float>()[c]) *
                           static_cast<double>(scale.const_data_ptr<float>()[c]);
      shade[c] = static_cast<uint8_t>(std::isfinite(value) ? std::clamp(value, 0.0, 255.0) : 0.0);
    }
    return {shade[0], shade[1], shade[2]};
  }
  torch::Tensor values, low, scale;
  int64_t height, width;
};

std::array<double, 3> in_camera(const SceneView& scene, int64_t view, const float* point) {
  const float *r = scene.rots.const_data_ptr<float>() + 9 * view, *t = scene.trans.const_data_ptr<float>() + 3 * view;
  std::array<double, 3> out{};
  for (size_t i = 0; i < 3; ++i)
    for (size_t k = 0; k < 3; ++k)
      out[i] += static_cast<double>(r[3 * k + i]) * (static_cast<double>(point[k]) - static_cast<double>(t[k]));
  return out;
}

Projected in_picture(const SceneView& scene, int64_t view, const std::array<double, 3>& p) {
  const float *k = scene.intrins.const_data_ptr<float>() + 9 * view,
              *r = scene.post_rots.const_data_ptr<float>() + 9 * view,
              *t = scene.post_trans.const_data_ptr<float>() + 3 * view;
  const auto times = [](const float* m, double a, double b, double c) {
    return static_cast<double>(m[0]) * a + static_cast<double>(m[1]) * b + static_cast<double>(m[2]) * c;
  };
  const double u = times(k, p[0], p[1], p[2]) / p[2], v = times(k + 3, p[0], p[1], p[2]) / p[2];
  return {times(r, u, v, 1.0) + static_cast<double>(t[0]), times(r + 3, u, v, 1.0) + static_cast<double>(t[1]), p[2]};
}

// Liang and Barsky: the part of a line inside [0, width] x [0, height].
bool clip_line(Projected& a, Projected& b, double width, double height) {
  double begin = 0.0, end = 1.0;
  const double dx = b.x - a.x, dy = b.y - a.y;
  for (const auto& [step, room] :
       {std::pair{-dx, a.x}, std::pair{dx, width - a.x}, std::pair{-dy, a.y}, std::pair{dy, height - a.y}}) {
    if (step == 0.0) {
      if (room < 0.0) return false;
      continue;
    }
    const double at = room / step;
    if (step < 0.0)
      begin = std::max(begin, at);
    else
      end = std::min(end, at);
  }
  if (!(begin < end)) return false;
  const Projected first = a;
  a = {first.x + begin * dx, first.y + begin * dy, first.depth};
  b = {first.x + end * dx, first.y + end * dy, b.depth};
  return true;
}

void draw_boxes(draw::Canvas& canvas, const SceneView& scene, int64_t view, draw::Point corner, double scale) {
  if (!scene.boxes.defined()) return;
  const float* all = scene.boxes.const_data_ptr<float>();
  for (int64_t box = 0; box < scene.boxes.size(0); ++box) {
    const float* points = all + 24 * box;
    if (std::all_of(points, points + 24, [](float value) { return value == 0.0f; })) continue;
    for (const auto& [from, to] : box_edges()) {
      const auto line = project_line(scene, view, points + 3 * from, points + 3 * to);
      if (!line) continue;
      canvas.path({{corner.x + scale * line->first.x, corner.y + scale * line->first.y},
                   {corner.x + scale * line->second.x, corner.y + scale * line->second.y}},
                  1.2, from < 4 && to < 4 ? kBoxFront : kBoxRest);
    }
  }
}

}  // namespace

SceneView copy_scene(const task::Batch& batch, const torch::Tensor& logits, int64_t row) {
  const torch::NoGradGuard no_grad;
  const auto copy = [&](const torch::Tensor& all) {
    return all[row].detach().to(torch::kCPU, torch::kFloat32).contiguous().clone();
  };
  SceneView out{copy(batch.at("imgs")),
                copy(batch.at("rots")),
                copy(batch.at("trans")),
                copy(batch.at("intrins")),
                copy(batch.at("post_rots")),
                copy(batch.at("post_trans")),
                {},
                copy(logits.detach()).sigmoid(),
                copy(batch.at("binimgs"))};
  if (batch.has("boxes")) out.boxes = copy(batch.at("boxes"));
  return out;
}

std::string grid_png(const SceneView& scene, const Options& options, const std::string& title) {
  const int64_t classes = scene.truth.size(0), rows = scene.truth.size(1), columns = scene.truth.size(2);
  const double cell = std::max(1.0, std::floor(kGridSide / static_cast<double>(std::max(rows, columns))));
  const double wide = cell * static_cast<double>(columns), high = cell * static_cast<double>(rows);
  return png_of(
      kGap + static_cast<double>(classes) * (wide + kGap), kHead + high + kFoot, title, [&](draw::Canvas& canvas) {
        for (int64_t c = 0; c < classes; ++c) {
          const GridPicture p{scene.chance.const_data_ptr<float>() + c * rows * columns,
                              scene.truth.const_data_ptr<float>() + c * rows * columns,
                              rows,
                              columns,
                              options.grid,
                              kGap + static_cast<double>(c) * (wide + kGap),
                              kHead,
                              cell};
          const double iou = draw_cells(canvas, p);
          const double left = p.x_of(kCarWidth / 2), top = p.y_of(kCarLength / 2);
          canvas.rectangle({left, top}, p.x_of(-kCarWidth / 2) - left, p.y_of(-kCarLength / 2) - top, kCar);
          draw_frame(canvas, p.left, p.top, wide, high);
          canvas.text({p.left, kHead - 5}, fmt::format("{}: IoU {:.3f}", options.classes[static_cast<size_t>(c)], iou),
                      {11, kSceneQuiet});
          double at = p.left;
          for (const auto& [color, word] :
               {std::pair{kHit, "found"}, std::pair{kMiss, "missed"}, std::pair{kFalseAlarm, "false alarm"}}) {
            canvas.rectangle({at, p.top + high + 8}, 10, 10, color);
            canvas.text({at + 14, p.top + high + 17}, word, {11, kSceneQuiet});
            at += 90;
          }
        }
      });
}

std::string cameras_png(const SceneView& scene, const std::string& title) {
  const int64_t views = scene.imgs.size(0), height = scene.imgs.size(2), width = scene.imgs.size(3);
  const int64_t across = std::min<int64_t>(3, views), down = (views + across - 1) / across;
  const int64_t step = std::max<int64_t>(1, (width + kWidestView - 1) / kWidestView);
  const int64_t shown_width = (width + step - 1) / step, shown_height = (height + step - 1) / step;
  const double wide = static_cast<double>(shown_width) + kGap, high = static_cast<double>(shown_height) + kGap;
  return png_of(kGap + wide * static_cast<double>(across), kHead + high * static_cast<double>(down), title,
                [&](draw::Canvas& canvas) {
                  for (int64_t view = 0; view < views; ++view) {
                    const draw::Point corner{kGap + wide * static_cast<double>(view % across),
                                             kHead - kGap + high * static_cast<double>(view / across)};
                    const ViewPixels pixels(scene.imgs[view]);
                    for (int64_t y = 0; y < shown_height; ++y)
                      for (int64_t x = 0; x < shown_width; ++x)
                        canvas.rectangle({corner.x + static_cast<double>(x), corner.y + static_cast<double>(y)}, 1, 1,
                                         pixels.at(y * step, x * step, step));
                    draw_boxes(canvas, scene, view, corner, 1.0 / static_cast<double>(step));
                  }
                });
}

std::optional<std::pair<Projected, Projected>> project_line(const SceneView& scene, int64_t view, const float* from,
                                                            const float* to) {
  std::array<double, 3> a = in_camera(scene, view, from), b = in_camera(scene, view, to);
  if (a[2] < kNear && b[2] < kNear) return std::nullopt;
  // What lies behind the camera is cut off before it is divided by its depth.
  const auto cut = [](std::array<double, 3>& behind, const std::array<double, 3>& front) {
    const double share = (kNear - behind[2]) / (front[2] - behind[2]);
    for (size_t i = 0; i < 3; ++i) behind[i] += share * (front[i] - behind[i]);
  };
  if (a[2] < kNear) cut(a, b);
  if (b[2] < kNear) cut(b, a);
  Projected first = in_picture(scene, view, a), second = in_picture(scene, view, b);
  if (!clip_line(first, second, static_cast<double>(scene.imgs.size(3) - 1),
                 static_cast<double>(scene.imgs.size(2) - 1)))
    return std::nullopt;
  return std::pair{first, second};
}

const std::vector<std::pair<int, int>>& box_edges() {
  static const std::vector<std::pair<int, int>> edges{{0, 1}, {1, 2}, {2, 3}, {3, 0}, {4, 5}, {5, 6},
                                                      {6, 7}, {7, 4}, {0, 4}, {1, 5}, {2, 6}, {3, 7}};
  return edges;
}

}  // namespace redline::models::lift_splat
