// Pixels with coverage by distance: a pixel's share of a stroke or disc is how far its centre lies inside the edge,
// which is all the smoothing a chart needs. Encoded by libpng.
#include <png.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "draw/canvas.h"
#include "draw/letters/glyphs.h"

namespace redline::draw {

namespace {

class PngCanvas : public Canvas {
 public:
  PngCanvas(double width, double height, int scale)
      : scale_(scale),
        width_(static_cast<int>(width * scale)),
        height_(static_cast<int>(height * scale)),
        pixels_(static_cast<size_t>(width_) * static_cast<size_t>(height_) * 3, 255) {}

  void rectangle(Point corner, double width, double height, Color fill) override {
    const double left = corner.x * scale_, top = corner.y * scale_, right = left + width * scale_,
                 bottom = top + height * scale_;
    each_pixel(left, top, right, bottom, [&](int x, int y) {
      const double across = std::min<double>(x + 1, right) - std::max<double>(x, left);
      const double down = std::min<double>(y + 1, bottom) - std::max<double>(y, top);
      blend(x, y, fill, std::max(0.0, across) * std::max(0.0, down));
    });
  }

  void path(const std::vector<Point>& points, double width, Color stroke, bool dashed) override {
    double walked = 0.0;
    for (size_t i = 0; i + 1 < points.size(); ++i) {
      const Point a = points[i], b = points[i + 1];
      const double length = std::hypot(b.x - a.x, b.y - a.y);
      if (!dashed) {
        segment(a, b, width, stroke);
        continue;
      }
      constexpr double kOn = 5.0, kPeriod = 9.0;  // points
      for (double at = -std::fmod(walked, kPeriod); at < length; at += kPeriod) {
        const double from = std::max(0.0, at), to = std::min(length, at + kOn);
        if (to > from) segment(between(a, b, from / length), between(a, b, to / length), width, stroke);
      }
      walked += length;
    }
  }

  void dot(Point center, double radius, Color fill) override { segment(center, center, 2.0 * radius, fill); }

  void text(Point at, const std::string& words, const TextStyle& style) override {
    const int unit = std::max(1, static_cast<int>(std::lround(style.size * scale_ / 10.0)));
    const int advance = (kGlyphWidth + 1) * unit, total = advance * static_cast<int>(words.size());
    double left = at.x * scale_;
    if (style.anchor == Anchor::Middle) left -= total / 2.0;
    if (style.anchor == Anchor::End) left -= total;
    const double top = at.y * scale_ - kGlyphHeight * unit;
    for (size_t i = 0; i < words.size(); ++i)
      glyph(words[i], left + static_cast<double>(i) * advance, top, unit, style);
  }

  std::string finish() override {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = static_cast<png_uint_32>(width_);
    image.height = static_cast<png_uint_32>(height_);
    image.format = PNG_FORMAT_RGB;
    image.flags = PNG_IMAGE_FLAG_FAST;  // training stands still while it is written
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
    std::string bytes(size, '\0');
    if (png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels_.data(), 0, nullptr) == 0)
      throw Error(ExitCode::Failure, std::string("A chart could not be encoded as PNG: ") + image.message + ".");
    bytes.resize(size);
    return bytes;
  }

 private:
  static Point between(Point a, Point b, double t) { return {a.x + (b.x - a.x) * t, a.y + (b.y - a.y) * t}; }

  template <class Body>
  void each_pixel(double left, double top, double right, double bottom, const Body& body) {
    const int x0 = std::max(0, static_cast<int>(std::floor(left))),
              x1 = std::min(width_, static_cast<int>(std::ceil(right)));
    const int y0 = std::max(0, static_cast<int>(std::floor(top))),
              y1 = std::min(height_, static_cast<int>(std::ceil(bottom)));
    for (int y = y0; y < y1; ++y)
      for (int x = x0; x < x1; ++x) body(x, y);
  }

  // A line with round ends; a point when both ends are the same.
  void segment(Point from, Point to, double width, Color color) {
    const Point a{from.x * scale_, from.y * scale_}, b{to.x * scale_, to.y * scale_};
    const double radius = width * scale_ / 2.0, reach = radius + 1.0, dx = b.x - a.x, dy = b.y - a.y,
                 square = dx * dx + dy * dy;
    each_pixel(std::min(a.x, b.x) - reach, std::min(a.y, b.y) - reach, std::max(a.x, b.x) + reach,
               std::max(a.y, b.y) + reach, [&](int x, int y) {
                 const double px = x + 0.5 - a.x, py = y + 0.5 - a.y;
                 const double t = square > 0.0 ? std::clamp((px * dx + py * dy) / square, 0.0, 1.0) : 0.0;
                 blend(x, y, color, std::clamp(radius + 0.5 - std::hypot(px - t * dx, py - t * dy), 0.0, 1.0));
               });
  }

  void glyph(char letter, double left, double top, int unit, const TextStyle& style) {
    const uint64_t rows = glyph_rows(letter);
    for (int row = 0; row < kGlyphHeight; ++row)
      for (int column = 0; column < kGlyphWidth; ++column) {
        if (((rows >> (5 * (kGlyphHeight - 1 - row) + (kGlyphWidth - 1 - column))) & 1) == 0) continue;
        const double x = std::floor(left) + column * unit, y = std::floor(top) + row * unit;
        each_pixel(x, y, x + unit + (style.bold ? 1 : 0), y + unit,
                   [&](int px, int py) { blend(px, py, style.color, 1.0); });
      }
  }

  void blend(int x, int y, Color color, double coverage) {
    const double share = coverage * color.opacity;
    if (share <= 0.0) return;
    uint8_t* pixel =
        pixels_.data() + (static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x)) * 3;
    const uint8_t wanted[3] = {color.red, color.green, color.blue};
    for (int c = 0; c < 3; ++c) pixel[c] = static_cast<uint8_t>(std::lround(pixel[c] + (wanted[c] - pixel[c]) * share));
  }

  int scale_, width_, height_;
  std::vector<uint8_t> pixels_;
};

}  // namespace

std::unique_ptr<Canvas> make_png(double width, double height, int scale) {
  return std::make_unique<PngCanvas>(width, height, scale);
}

}  // namespace redline::draw
