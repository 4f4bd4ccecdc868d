#include "draw/panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "draw/ticks.h"

namespace redline::draw {

namespace {

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", std::abs(value) < 1e-12 ? 0.0 : value);
}

}  // namespace

Panel::Panel(Canvas& canvas, Point corner, double width, double height, const std::string& title)
    : canvas_(canvas), left_(corner.x + 48), top_(corner.y + 30), width_(width - 60), height_(height - 58) {
  canvas_.text({corner.x + 8, corner.y + 16}, title, {12, kInk, Anchor::Start, true});
}

void Panel::axes(double x_low, double x_high, double y_low, double y_high, bool x_labels) {
  const std::vector<double> rows = ticks_around(y_low, y_high);
  y_low_ = rows.front();
  y_high_ = rows.back();
  x_low_ = x_low;
  x_high_ = x_high > x_low ? x_high : x_low + 1.0;
  for (double value : rows) {
    const double y = place({x_low_, value}).y;
    canvas_.path({{left_, y}, {left_ + width_, y}}, 1, kGrid);
    canvas_.text({left_ - 6, y + 3.5}, tick_text(value), {10, kQuiet, Anchor::End});
  }
  if (!x_labels) return;
  for (double value : ticks_around(x_low_, x_high_))
    if (value >= x_low_ && value <= x_high_)
      canvas_.text({place({value, y_low_}).x, top_ + height_ + 15}, tick_text(value), {10, kQuiet, Anchor::Middle});
}

Point Panel::place(Point p) const {
  return {left_ + (p.x - x_low_) / (x_high_ - x_low_) * width_,
          top_ + height_ - (p.y - y_low_) / (y_high_ - y_low_) * height_};
}

void Panel::curve(const Series& series) {
  std::vector<Point> points;
  for (const Point& p : series.points) points.push_back(place(p));
  canvas_.path(points, 1.8, series.color);
  if (!points.empty()) canvas_.dot(points.back(), 2.6, series.color);
}

void Panel::dots(const Series& series, double radius) {
  for (const Point& p : series.points) canvas_.dot(place(p), radius, series.color);
}

void Panel::legend(const std::vector<Series>& list) {
  double x = left_ + width_;
  for (auto series = list.rbegin(); series != list.rend(); ++series) {
    canvas_.text({x, top_ - 14}, series->name, {10, kInk, Anchor::End});
    x -= 6.2 * static_cast<double>(series->name.size()) + 14;
    canvas_.rectangle({x, top_ - 21}, 8, 8, series->color);
    x -= 12;
  }
}

void Panel::bar(double center, double width, double value, Color color) {
  const Point low = place({center - width / 2, y_low_}),
              high = place({center + width / 2, std::clamp(value, y_low_, y_high_)});
  canvas_.rectangle({low.x, high.y}, high.x - low.x, low.y - high.y, color);
}

void Panel::shade(double from, double to, Color color) {
  const double a = place({from, y_low_}).x, b = place({to, y_low_}).x;
  canvas_.rectangle({a, top_}, std::max(1.0, b - a), height_, color);
}

void Panel::level(double value, const std::string& words) {
  const double y = place({x_low_, value}).y;
  canvas_.path({{left_, y}, {left_ + width_, y}}, 1.2, kRed, true);
  canvas_.text({left_ + width_ - 2, y - 4}, words, {10, kRed, Anchor::End});
}

void Panel::note(double x, const std::string& words) {
  canvas_.text({place({x, y_low_}).x, top_ + height_ + 15}, words, {9, kQuiet, Anchor::Middle});
}

void Panel::empty(const std::string& words) {
  canvas_.text({left_ + width_ / 2, top_ + height_ / 2}, words, {11, kQuiet, Anchor::Middle});
}

}  // namespace redline::draw
