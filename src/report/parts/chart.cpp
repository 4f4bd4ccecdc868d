#include "report/parts/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

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
  if (size > 0 && size < 1e-3) {  // 0.00015 would not fit beside an axis
    const auto power = static_cast<int>(std::floor(std::log10(size) + 1e-9));
    return fmt::format("{:.3g}e{}", value * std::pow(10.0, -power), power);
  }
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
  for (double value : draw::ticks_within(x.low, x.high, 5)) {
    // A number at the right end would reach beyond the drawing.
    const std::string text = number(value);
    const bool at_end = x(value) + 4.0 * static_cast<double>(text.size()) > x.to;
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>", at_end ? x.to : x(value),
                       kHeight - kBottom + 16, at_end ? "end" : "mid", text);
  }
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

namespace {

constexpr size_t kHoverColumns = 64, kMostMarkers = 120;
constexpr double kOutside = 0.005;  // share of the values that may lie beyond an axis on either side
constexpr size_t kFewValues = 60;   // all of so few are shown
constexpr double kMuchWider = 3.0;  // and all of more, unless that would make the axis so much wider

// From the smallest to the largest value, or without the few that would flatten all others.
std::pair<double, double> fitting_range(std::vector<double> values) {
  if (values.empty()) return {0, 1};
  std::sort(values.begin(), values.end());
  const double least = values.front(), most = values.back();
  if (values.size() < kFewValues) return {least, most};
  const auto cut = static_cast<size_t>(kOutside * static_cast<double>(values.size()));
  const double low = values[cut], high = values[values.size() - 1 - cut];
  if (!(high > low) || most - least <= kMuchWider * (high - low)) return {least, most};
  const double margin = 0.08 * (high - low);
  return {std::max(least, low - margin), std::min(most, high + margin)};
}

std::string polyline(const std::vector<std::pair<double, double>>& points, const Scale& x, const Scale& y) {
  std::string path;
  for (const auto& [px, py] : points) path += fmt::format("{:.1f},{:.1f} ", x(px), y(std::clamp(py, y.low, y.high)));
  return path;
}

std::string series_svg(const Series& series, const Scale& x, const Scale& y) {
  std::string out;
  if (series.look == Look::Dots || series.points.size() == 1) {
    for (const auto& [px, py] : series.points)
      out += fmt::format("<circle class=\"f{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>", series.color, x(px),
                         y(std::clamp(py, y.low, y.high)));
    return out;
  }
  return fmt::format("<polyline class=\"s{}{}\" points=\"{}\"/>", series.color,
                     series.look == Look::Faint ? " faint" : "", polyline(series.points, x, y));
}

std::string band_svg(const Series& series, const Scale& x, const Scale& y) {
  std::vector<std::pair<double, double>> low, high;
  for (size_t i = 0; i < std::min(series.points.size(), series.band.size()); ++i) {
    low.emplace_back(series.points[i].first, series.band[i].first);
    high.emplace_back(series.points[i].first, series.band[i].second);
  }
  std::reverse(high.begin(), high.end());
  return fmt::format("<polygon class=\"f{} band\" points=\"{}{}\"/>", series.color, polyline(low, x, y),
                     polyline(high, x, y));
}

// The value of a series nearest to the middle of a column, if it has one there.
std::optional<double> value_in(const Series& series, double begin, double end) {
  const double middle = (begin + end) / 2;
  std::optional<double> found;
  double distance = INFINITY;
  const auto first =
      std::lower_bound(series.points.begin(), series.points.end(), std::pair<double, double>(begin, -INFINITY));
  for (auto at = first; at != series.points.end() && at->first <= end; ++at)
    if (std::abs(at->first - middle) < distance) distance = std::abs(at->first - middle), found = at->second;
  return found;
}

std::string hover(const std::vector<Series>& shown, const Scale& x, const Scale& y, const LineChart& chart) {
  std::string out;
  const double width = (x.to - x.from) / static_cast<double>(kHoverColumns);
  for (size_t c = 0; c < kHoverColumns; ++c) {
    const double begin = x.low + (x.high - x.low) * static_cast<double>(c) / kHoverColumns,
                 end = x.low + (x.high - x.low) * static_cast<double>(c + 1) / kHoverColumns;
    std::string text;
    for (const Series& series : shown) {
      if (series.look == Look::Faint) continue;
      if (const auto value = value_in(series, begin, end))
        text += "\n" + (series.name.empty() ? chart.y_label : series.name) + " " + number(*value);
    }
    if (text.empty()) continue;
    out += fmt::format(
        "<rect class=\"h\" x=\"{:.1f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{:.0f}\"><title>{}</title></rect>",
        x.from + width * static_cast<double>(c), y.to, width, y.from - y.to,
        draw::escape_html(chart.x_label + " " + number((begin + end) / 2)) + draw::escape_html(text));
  }
  return out;
}

std::string markers_svg(const std::vector<Marker>& markers, const Scale& x) {
  std::string out;
  const size_t every = std::max<size_t>(1, (markers.size() + kMostMarkers - 1) / kMostMarkers);
  for (size_t i = 0; i < markers.size(); i += every) {
    const Marker& marker = markers[i];
    if (!(marker.x >= x.low && marker.x <= x.high)) continue;
    out += fmt::format("<path class=\"f{}\" d=\"M{:.1f} {:.0f}l3 5h-6z\"><title>{}</title></path>", marker.color,
                       x(marker.x), kHeight - kBottom, draw::escape_html(marker.what));
  }
  return out;
}

}  // namespace

std::string draw_lines(const LineChart& chart) {
  std::vector<Series> shown;
  std::vector<double> values;
  double left = INFINITY, right = -INFINITY;
  for (const Series& series : chart.series) {
    Series one = series;
    if (one.band.empty()) one.points = thin(series.points);
    // What is drawn faintly behind a line may be cut by the axis; the line may not.
    for (const auto& [px, py] : one.points) {
      if (!std::isfinite(px) || !std::isfinite(py)) continue;
      left = std::min(left, px), right = std::max(right, px);
      values.push_back(py);
    }
    shown.push_back(std::move(one));
  }
  Scale x{left, right, kLeft, kWidth - kRight};
  const auto [low, high] = fitting_range(values);
  Scale y{low, high, kHeight - kBottom, kTop};
  widen_if_flat(x.low, x.high);
  widen_if_flat(y.low, y.high);
  const auto outside = std::count_if(values.begin(), values.end(), [&](double v) { return v < y.low || v > y.high; });
  std::string out = "<figure><figcaption>" + draw::escape_html(chart.title) + "</figcaption>" +
                    open_svg(kWidth, kHeight, chart.title) + axes(x, y, chart);
  std::vector<std::pair<std::string, int>> keys;
  for (const Series& series : shown)
    if (!series.band.empty()) out += band_svg(series, x, y);
  for (const Series& series : shown) {
    out += series_svg(series, x, y);
    if (!series.name.empty()) keys.emplace_back(series.name, series.color);
  }
  out += markers_svg(chart.markers, x) + hover(shown, x, y, chart) + "</svg>";
  if (keys.size() > 1) out += legend(keys);
  if (outside > 0)
    out += fmt::format("<p class=\"legend\">{} value{} beyond the axis</p>", outside, outside == 1 ? "" : "s");
  return out + "</figure>";
}

}  // namespace redline::report
