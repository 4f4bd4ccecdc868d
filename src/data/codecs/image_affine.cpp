#include "data/codecs/image_affine.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "data/codecs/image_ops.h"

namespace redline::data {

namespace {

// The places of a row or column that a point at `at` is made of, and how much of each. The edge is repeated.
struct Taps {
  int32_t place[4];
  double share[4];
  int count;
};

Taps bilinear_taps(double at, int32_t size) {
  at -= 0.5;
  const auto first = static_cast<int32_t>(std::floor(at));
  const double d = at - first;
  return {{std::clamp(first, 0, size - 1), std::clamp(first + 1, 0, size - 1)}, {1.0 - d, d}, 2};
}

// Keys' cubic with a = -1, which is Pillow's for transforms (its resize has -0.5).
Taps bicubic_taps(double at, int32_t size) {
  at -= 0.5;
  const auto first = static_cast<int32_t>(std::floor(at));
  const double d = at - first;
  Taps taps{{}, {d * (-1 + d * (2 - d)), 1 + d * d * (-2 + d), d * (1 + d * (1 - d)), d * d * (-1 + d)}, 4};
  for (int i = 0; i < 4; ++i) taps.place[i] = std::clamp(first - 1 + i, 0, size - 1);
  return taps;
}

void mix_pixel(const RgbView& source, const Taps& across, const Taps& down, uint8_t* out) {
  double sum[3] = {};
  for (int j = 0; j < down.count; ++j) {
    const uint8_t* row = source.pixels + down.place[j] * source.stride;
    double part[3] = {};
    for (int i = 0; i < across.count; ++i) {
      const uint8_t* pixel = row + int64_t{across.place[i]} * 3;
      for (int c = 0; c < 3; ++c) part[c] += across.share[i] * pixel[c];
    }
    for (int c = 0; c < 3; ++c) sum[c] += down.share[j] * part[c];
  }
  // Cut, not rounded; the little that is added takes back what summing in another order lost.
  for (int c = 0; c < 3; ++c) out[c] = static_cast<uint8_t>(std::clamp(sum[c] + 1e-9, 0.0, 255.0));
}

}  // namespace

Array affine_rgb(const RgbView& source, const AffineMap& m, ResizeFilter filter, std::array<uint8_t, 3> fill) {
  const int32_t width = source.width, height = source.height;
  Array out = Array::empty(Dtype::U8, {height, width, 3});
  uint8_t* pixel = out.as<uint8_t>().data();
  const auto taps = filter == ResizeFilter::Bicubic ? bicubic_taps : bilinear_taps;
  for (int32_t y = 0; y < height; ++y) {
    for (int32_t x = 0; x < width; ++x, pixel += 3) {
      const double from_x = m[0] * (x + 0.5) + m[1] * (y + 0.5) + m[2];
      const double from_y = m[3] * (x + 0.5) + m[4] * (y + 0.5) + m[5];
      if (from_x < 0 || from_x >= width || from_y < 0 || from_y >= height) {
        std::copy(fill.begin(), fill.end(), pixel);
        continue;
      }
      mix_pixel(source, taps(from_x, width), taps(from_y, height), pixel);
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
  return affine_rgb(source, {c, s, cx - c * cx - s * cy, -s, c, cy + s * cx - c * cy}, filter, fill);
}

}  // namespace redline::data
