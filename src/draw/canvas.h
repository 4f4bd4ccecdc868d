// The few shapes a chart needs, drawn as SVG text or as PNG pixels (TensorBoard shows only the latter). Free of torch.
// Coordinates are in points, y downwards; text sits on its baseline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace redline::draw {

struct Color {
  uint8_t red = 0, green = 0, blue = 0;
  double opacity = 1.0;
};
struct Point {
  double x = 0, y = 0;
};
enum class Anchor { Start, Middle, End };
struct TextStyle {
  double size = 11;
  Color color{};
  Anchor anchor = Anchor::Start;
  bool bold = false;
};

class Canvas {
 public:
  virtual ~Canvas() = default;
  virtual void rectangle(Point corner, double width, double height, Color fill) = 0;
  virtual void path(const std::vector<Point>& points, double width, Color stroke, bool dashed = false) = 0;
  virtual void dot(Point center, double radius, Color fill) = 0;
  virtual void text(Point at, const std::string& words, const TextStyle& style) = 0;
  virtual std::string finish() = 0;  // the file's bytes
};

std::unique_ptr<Canvas> make_svg(double width, double height, const std::string& title);
// `scale` pixels per point.
std::unique_ptr<Canvas> make_png(double width, double height, int scale = 2);

}  // namespace redline::draw
