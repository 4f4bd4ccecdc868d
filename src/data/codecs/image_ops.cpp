#include "data/codecs/image_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace redline::data {

namespace {

Array rotate_half(const RgbView& source) {
  Array out = Array::empty(Dtype::U8, {source.height, source.width, 3});
  uint8_t* pixel = out.as<uint8_t>().data();
  for (int32_t y = source.height - 1; y >= 0; --y)
    for (int32_t x = source.width - 1; x >= 0; --x, pixel += 3)
      std::memcpy(pixel, source.pixels + y * source.stride + int64_t{x} * 3, 3);
  return out;
}

// Square pictures only: a quarter turn counter-clockwise, or three.
Array rotate_quarter(const RgbView& source, bool once) {
  Array out = Array::empty(Dtype::U8, {source.height, source.width, 3});
  uint8_t* pixel = out.as<uint8_t>().data();
  const int32_t last = source.width - 1;
  for (int32_t y = 0; y < source.height; ++y)
    for (int32_t x = 0; x < source.width; ++x, pixel += 3) {
      const int32_t from_x = once ? last - y : y, from_y = once ? x : last - x;
      std::memcpy(pixel, source.pixels + from_y * source.stride + int64_t{from_x} * 3, 3);
    }
  return out;
}

double round15(double value) { return std::nearbyint(value * 1e15) / 1e15; }
int64_t fixed16(double value) { return static_cast<int64_t>(std::floor(value * 65536.0 + 0.5)); }

}  // namespace

Array crop_rgb(const RgbView& source, int32_t x0, int32_t y0, int32_t width, int32_t height) {
  Array out = Array::zeros(Dtype::U8, {height, width, 3});
  const int32_t left = std::max(x0, 0), right = std::min(x0 + width, source.width);
  if (right <= left) return out;
  for (int32_t y = std::max(y0, 0); y < std::min(y0 + height, source.height); ++y) {
    uint8_t* row = out.as<uint8_t>().data() + (int64_t{y - y0} * width + (left - x0)) * 3;
    std::memcpy(row, source.pixels + y * source.stride + int64_t{left} * 3, static_cast<size_t>(right - left) * 3);
  }
  return out;
}

Array flip_rgb(const RgbView& source) {
  Array out = Array::empty(Dtype::U8, {source.height, source.width, 3});
  uint8_t* pixel = out.as<uint8_t>().data();
  for (int32_t y = 0; y < source.height; ++y)
    for (int32_t x = source.width - 1; x >= 0; --x, pixel += 3)
      std::memcpy(pixel, source.pixels + y * source.stride + int64_t{x} * 3, 3);
  return out;
}

// Pillow's rotate() (Image.py) and affine_fixed (Geometry.c): the inverse map in 16.16 fixed point, stepped along each
// row.
Array rotate_rgb(const RgbView& source, double degrees) {
  degrees = std::fmod(degrees, 360.0);
  if (degrees < 0) degrees += 360.0;
  const int32_t width = source.width, height = source.height;
  if (degrees == 0.0) return crop_rgb(source, 0, 0, width, height);
  if (degrees == 180.0) return rotate_half(source);
  if ((degrees == 90.0 || degrees == 270.0) && width == height) return rotate_quarter(source, degrees == 90.0);
  const double angle = -degrees * std::numbers::pi / 180.0;
  const double cosine = round15(std::cos(angle)), sine = round15(std::sin(angle));
  const double cx = width / 2.0, cy = height / 2.0;
  const double shift_x = cosine * -cx + sine * -cy + cx, shift_y = -sine * -cx + cosine * -cy + cy;
  const int64_t xx_x = fixed16(cosine), xx_y = fixed16(sine), yy_x = fixed16(-sine), yy_y = fixed16(cosine);
  int64_t row_x = fixed16(shift_x + cosine * 0.5 + sine * 0.5), row_y = fixed16(shift_y - sine * 0.5 + cosine * 0.5);

  Array out = Array::zeros(Dtype::U8, {height, width, 3});
  uint8_t* pixel = out.as<uint8_t>().data();
  for (int32_t y = 0; y < height; ++y, row_x += xx_y, row_y += yy_y) {
    int64_t at_x = row_x, at_y = row_y;
    for (int32_t x = 0; x < width; ++x, pixel += 3, at_x += xx_x, at_y += yy_x) {
      const int64_t from_x = at_x >> 16, from_y = at_y >> 16;
      if (from_x < 0 || from_x >= width || from_y < 0 || from_y >= height) continue;
      std::memcpy(pixel, source.pixels + from_y * source.stride + from_x * 3, 3);
    }
  }
  return out;
}

}  // namespace redline::data
