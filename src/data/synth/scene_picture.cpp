#include "data/synth/scene_picture.h"

#include <algorithm>
#include <cmath>

namespace redline::data::synth {

namespace {

constexpr double kNear = 0.2;  // metres before the camera: nearer is cut off

struct Pixel {
  double x, y;
};

// Car to camera: x right, y down, z ahead.
Point to_camera(const SceneCamera& camera, const Point& p) {
  const double x = p[0] - camera.place[0], y = p[1] - camera.place[1], z = p[2] - camera.place[2];
  const double c = std::cos(camera.yaw), s = std::sin(camera.yaw);
  return {s * x - c * y, -z, c * x + s * y};
}

uint32_t grain(uint64_t key, int32_t x, int32_t y) {
  uint64_t h = key + static_cast<uint64_t>(x) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(y) * 0xC2B2AE3D27D4EB4Fu;
  h ^= h >> 29;
  h *= 0xBF58476D1CE4E5B9u;
  return static_cast<uint32_t>(h >> 40);
}

class Canvas {
 public:
  Canvas(const SceneCamera& camera, uint64_t key)
      : camera_(camera), key_(key), picture_(Array::empty(Dtype::U8, {camera.height, camera.width, 3})) {}

  // Ground tiles of 4 m in two greys, fading into the sky at the horizon.
  void background() {
    const double horizon = camera_.height / 2.0, c = std::cos(camera_.yaw), s = std::sin(camera_.yaw);
    for (int32_t y = 0; y < camera_.height; ++y)
      for (int32_t x = 0; x < camera_.width; ++x) {
        std::array<float, 3> colour{0.55f, 0.68f, 0.82f};
        const double below = y + 0.5 - horizon;
        if (below > 0.0) {
          const double depth = camera_.place[2] * camera_.focal / below;
          const double side = (x + 0.5 - camera_.width / 2.0) / camera_.focal * depth;
          const double ahead = camera_.place[0] + c * depth + s * side, left = camera_.place[1] + s * depth - c * side;
          const bool light =
              (static_cast<int64_t>(std::floor(ahead / 4)) + static_cast<int64_t>(std::floor(left / 4))) % 2 == 0;
          const auto far = static_cast<float>(std::min(1.0, depth / 120.0));
          const float grey = (light ? 0.36f : 0.30f) * (1 - far) + 0.6f * far;
          colour = {grey, grey, grey};
        } else {
          const auto up = static_cast<float>(-below / horizon);
          colour = {0.72f - 0.3f * up, 0.80f - 0.2f * up, 0.88f};
        }
        put(x, y, colour);
      }
  }

  void box(const SceneBox& b) {
    const double c = std::cos(b.yaw), s = std::sin(b.yaw);
    const auto corner = [&](int i) -> Point {
      const double along = (i & 1) != 0 ? b.length / 2 : -b.length / 2,
                   across = (i & 2) != 0 ? b.width / 2 : -b.width / 2;
      return {b.x + c * along - s * across, b.y + s * along + c * across, (i & 4) != 0 ? b.height : 0.0};
    };
    // Corners of each face, its outward direction and how light falls on it.
    struct Face {
      int corners[4];
      Point out;
      float light;
    };
    const Face faces[] = {{{1, 3, 7, 5}, {c, s, 0}, 0.9f},
                          {{0, 4, 6, 2}, {-c, -s, 0}, 0.75f},
                          {{2, 6, 7, 3}, {-s, c, 0}, 0.65f},
                          {{0, 1, 5, 4}, {s, -c, 0}, 0.8f},
                          {{4, 5, 7, 6}, {0, 0, 1}, 1.0f}};
    for (const Face& face : faces) {
      const Point on = corner(face.corners[0]);
      double facing = 0.0;
      for (size_t i = 0; i < 3; ++i) facing += face.out[i] * (camera_.place[i] - on[i]);
      if (facing <= 0.0) continue;
      std::vector<Point> polygon;
      for (int i : face.corners) polygon.push_back(to_camera(camera_, corner(i)));
      fill(cut_near(polygon), {b.colour[0] * face.light, b.colour[1] * face.light, b.colour[2] * face.light});
    }
  }

  Array take() { return std::move(picture_); }

 private:
  static std::vector<Point> cut_near(const std::vector<Point>& polygon) {
    std::vector<Point> out;
    for (size_t i = 0; i < polygon.size(); ++i) {
      const Point &a = polygon[i], &b = polygon[(i + 1) % polygon.size()];
      if (a[2] >= kNear) out.push_back(a);
      if ((a[2] >= kNear) == (b[2] >= kNear)) continue;
      const double t = (kNear - a[2]) / (b[2] - a[2]);
      out.push_back({a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1]), kNear});
    }
    return out;
  }

  // Convex: in each row from its leftmost to its rightmost edge.
  void fill(const std::vector<Point>& polygon, const std::array<float, 3>& colour) {
    if (polygon.size() < 3) return;
    std::vector<Pixel> at;
    double top = 1e30, bottom = -1e30;
    for (const Point& p : polygon) {
      at.push_back(
          {p[0] / p[2] * camera_.focal + camera_.width / 2.0, p[1] / p[2] * camera_.focal + camera_.height / 2.0});
      top = std::min(top, at.back().y), bottom = std::max(bottom, at.back().y);
    }
    const auto first = static_cast<int32_t>(std::clamp(std::floor(top), 0.0, static_cast<double>(camera_.height)));
    const auto last = static_cast<int32_t>(std::clamp(std::ceil(bottom), 0.0, static_cast<double>(camera_.height)));
    for (int32_t y = first; y < last; ++y) {
      double left = 1e30, right = -1e30;
      for (size_t i = 0; i < at.size(); ++i) {
        const Pixel &a = at[i], &b = at[(i + 1) % at.size()];
        const double row = y + 0.5;
        if ((a.y <= row) == (b.y <= row)) continue;
        const double x = a.x + (row - a.y) / (b.y - a.y) * (b.x - a.x);
        left = std::min(left, x), right = std::max(right, x);
      }
      if (left > right) continue;
      const auto from = static_cast<int32_t>(std::clamp(left, 0.0, static_cast<double>(camera_.width)));
      const auto to = static_cast<int32_t>(std::clamp(right, 0.0, static_cast<double>(camera_.width)));
      for (int32_t x = from; x < to; ++x) put(x, y, colour);
    }
  }

  void put(int32_t x, int32_t y, const std::array<float, 3>& colour) {
    uint8_t* pixel = picture_.as<uint8_t>().data() + (int64_t{y} * camera_.width + x) * 3;
    const float grit = static_cast<float>(grain(key_, x / 2, y / 2) & 15) - 7.5f;
    for (size_t c = 0; c < 3; ++c) pixel[c] = static_cast<uint8_t>(std::clamp(colour[c] * 255.0f + grit, 0.0f, 255.0f));
  }

  SceneCamera camera_;
  uint64_t key_;
  Array picture_;
};

}  // namespace

Array scene_picture(const SceneCamera& camera, const std::vector<SceneBox>& boxes, uint64_t noise_key) {
  Canvas canvas(camera, noise_key);
  canvas.background();
  std::vector<std::pair<double, const SceneBox*>> order;
  for (const SceneBox& box : boxes)
    order.emplace_back(std::hypot(box.x - camera.place[0], box.y - camera.place[1]), &box);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [distance, box] : order) canvas.box(*box);
  return canvas.take();
}

}  // namespace redline::data::synth
