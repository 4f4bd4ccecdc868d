#include "report/parts/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "draw/escape.h"
#include "draw/ticks.h"

namespace redline::report {

namespace {

constexpr double kWidth = 460, kHeight = 240, kLeft = 52, kRight = 12, kTop = 26, kBottom = 38;

struct Scale {
  double low = 0, high = 1, from = 0, to = 1;
  double operator()(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

std::string number(double value) {
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.3g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

void widen_if_flat(double& low, double& high) {
  if (!(low <= high)) low = 0, high = 1;
  if (high - low < 1e-12 * std::max(1.0, std::abs(high))) {
    const double pad = std::max(0.5 * std::abs(high), 0.5);
    low -= pad;
    high += pad;
  }
}

std::string open_svg(double width, double height, const std::string& title) {
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">", width, height,
                     draw::escape_html(title));
}

std::string axes(const Scale& x, const Scale& y, const LineChart& chart) {
  std::string out;
  for (double value : draw::ticks_within(y.low, y.high, 4))
    out += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{:.1f}\" y=\"{:.1f}\" "
        "class=\"end\">{}</text>",
        x.from, x.to, y(value), y(value), x.from - 6, y(value) + 4, number(value));
  for (double value : draw::ticks_within(x.low, x.high, 5))
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"mid\">{}</text>", x(value), kHeight - kBottom + 16,
                       number(value));
  out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"mid\">{}</text>", (x.from + x.to) / 2, kHeight - 4,
                     draw::escape_html(chart.x_label));
  out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", 2.0, kTop - 12, draw::escape_html(chart.y_label));
  return out;
}

}  // namespace

std::string legend(const std::vector<std::pair<std::string, int>>& entries) {
  std::string out = "<p class=\"legend\">";
  for (const auto& [name, color] : entries)
    out += fmt::format("<span><i class=\"key c{}\"></i>{}</span>", color, draw::escape_html(name));
  return out + "</p>";
}

std::vector<std::pair<double, double>> thin(const std::vector<std::pair<double, double>>& points, size_t columns) {
  std::vector<std::pair<double, double>> finite;
  for (const auto& point : points)
    if (std::isfinite(point.first) && std::isfinite(point.second)) finite.push_back(point);
  if (finite.size() <= 2 * columns) return finite;
  std::vector<std::pair<double, double>> kept;
  for (size_t c = 0; c < columns; ++c) {
    const auto begin = finite.begin() + static_cast<ptrdiff_t>(c * finite.size() / columns);
    const auto end = finite.begin() + static_cast<ptrdiff_t>((c + 1) * finite.size() / columns);
    const auto [least, most] =
        std::minmax_element(begin, end, [](const auto& a, const auto& b) { return a.second < b.second; });
    kept.push_back(least < most ? *least : *most);
    if (least != most) kept.push_back(least < most ? *most : *least);
  }
  return kept;
}

std::string draw_lines(const LineChart& chart) {
  Scale x{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), kLeft, kWidth - kRight};
  Scale y{x.low, x.high, kHeight - kBottom, kTop};
  std::vector<Series> shown;
  for (const Series& series : chart.series) {
    shown.push_back({series.name, thin(series.points), series.color});
    for (const auto& [px, py] : shown.back().points) {
      x.low = std::min(x.low, px), x.high = std::max(x.high, px);
      y.low = std::min(y.low, py), y.high = std::max(y.high, py);
    }
  }
  widen_if_flat(x.low, x.high);
  widen_if_flat(y.low, y.high);
  std::string out = "<figure><figcaption>" + draw::escape_html(chart.title) + "</figcaption>" +
                    open_svg(kWidth, kHeight, chart.title) + axes(x, y, chart);
  std::vector<std::pair<std::string, int>> keys;
  for (const Series& series : shown) {
    std::string path;
    for (const auto& [px, py] : series.points) path += fmt::format("{:.1f},{:.1f} ", x(px), y(py));
    if (series.points.size() == 1)
      out += fmt::format("<circle class=\"f{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>", series.color,
                         x(series.points[0].first), y(series.points[0].second));
    else
      out += fmt::format("<polyline class=\"s{}\" points=\"{}\"/>", series.color, path);
    keys.emplace_back(series.name, series.color);
  }
  return out + "</svg>" + (keys.size() > 1 ? legend(keys) : "") + "</figure>";
}

}  // namespace redline::report
