#include "data/codecs/image_affine.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "data/codecs/image_ops.h"

namespace redline::data {

namespace {

// The places of a row or column that a point at `at` lies between, the edge repeated, and how far beyond the first of
// the middle two.
template <int count>
struct Between {
  int32_t place[count];
  double beyond;
  Between(double at, int32_t size) {
    at -= 0.5;
    const double first = std::floor(at);
    beyond = at - first;
    for (int i = 0; i < count; ++i)
      place[i] = std::clamp(static_cast<int32_t>(first) + i - (count / 2 - 1), 0, size - 1);
  }
};

// In the order of Pillow's sums: its results are cut, not rounded, so the last bit shows.
double between(const double (&v)[2], double d) { return v[0] + (v[1] - v[0]) * d; }
// Keys' cubic with a = -1, which is Pillow's for transforms (its resize has -0.5).
double between(const double (&v)[4], double d) {
  const double p2 = -v[0] + v[2], p3 = 2 * (v[0] - v[1]) + v[2] - v[3], p4 = -v[0] + v[1] - v[2] + v[3];
  return v[1] + d * (p2 + d * (p3 + d * p4));
}

template <int count>
void mix_pixel(const RgbView& source, double x, double y, uint8_t* out) {
  const Between<count> across(x, source.width), down(y, source.height);
  for (int c = 0; c < 3; ++c) {
    double rows[count];
    for (int j = 0; j < count; ++j) {
      const uint8_t* row = source.pixels + down.place[j] * source.stride + c;
      double values[count];
      for (int i = 0; i < count; ++i) values[i] = row[int64_t{across.place[i]} * 3];
      rows[j] = between(values, across.beyond);
    }
    out[c] = static_cast<uint8_t>(std::clamp(between(rows, down.beyond), 0.0, 255.0));
  }
}

}  // namespace

Array affine_rgb(const RgbView& source, const AffineMap& m, ResizeFilter filter, std::array<uint8_t, 3> fill) {
  const int32_t width = source.width, height = source.height;
  Array out = Array::empty(Dtype::U8, {height, width, 3});
  uint8_t* pixel = out.as<uint8_t>().data();
  const auto mix = filter == ResizeFilter::Bicubic ? mix_pixel<4> : mix_pixel<2>;
  for (int32_t y = 0; y < height; ++y) {
    for (int32_t x = 0; x < width; ++x, pixel += 3) {
      const double from_x = m[0] * (x + 0.5) + m[1] * (y + 0.5) + m[2];
      const double from_y = m[3] * (x + 0.5) + m[4] * (y + 0.5) + m[5];
      if (from_x < 0 || from_x >= width || from_y < 0 || from_y >= height) {
        std::copy(fill.begin(), fill.end(), pixel);
        continue;
      }
      mix(source, from_x, from_y, pixel);
    }
  }
  return out;
}

Array rotate_rgb(const RgbView& source, double degrees, ResizeFilter filter, std::array<uint8_t, 3> fill) {
  degrees = std::fmod(degrees, 360.0);
  if (degrees < 0) degrees += 360.0;
  const bool square = source.width == source.height;
  if (degrees == 0.0 || degrees == 180.0 || (square && (degrees == 90.0 || degrees == 270.0)))
    return rotate_rgb(source, degrees);  // pixels only change places
  const double angle = -degrees * std::numbers::pi / 180.0;
  const auto round15 = [](double value) { return std::nearbyint(value * 1e15) / 1e15; };
  const double c = round15(std::cos(angle)), s = round15(std::sin(angle));
  const double cx = source.width / 2.0, cy = source.height / 2.0;
  return affine_rgb(source, {c, s, c * -cx + s * -cy + cx, -s, c, -s * -cx + c * -cy + cy}, filter, fill);
}

}  // namespace redline::data
