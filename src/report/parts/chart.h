// Charts without script or network: lines as inline SVG, bars as HTML boxes (their text keeps its size on a phone);
// colours from the page's style sheet (classes c0..c11), so that light and dark both work. Long series are thinned to
// what a screen can show (extremes per column are kept), so a page of 100,000 steps stays small.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace redline::report {

enum class Look { Line, Faint, Dots };
struct Series {
  std::string name;  // empty: not in the legend, e.g. the raw values behind a smoothed line
  std::vector<std::pair<double, double>> points;  // x ascending
  int color = 0;
  Look look = Look::Line;
  // With points: a band between these, parallel to them; empty: none.
  std::vector<std::pair<double, double>> band{};  // low and high
};
// Something that happened: a tick below the chart.
struct Marker {
  double x = 0;
  std::string what;  // "checkpoint at step 100"
  int color = 0;
};
struct LineChart {
  std::string title, x_label, y_label;
  std::vector<Series> series;
  std::vector<Marker> markers{};
};
// Pointing at a column shows its values. The axis holds what nearly all values need: single ones beyond it are drawn at
// its edge and counted.
std::string draw_lines(const LineChart& chart);

// At most `columns` buckets; each keeps its smallest and largest value in x order. NaN values are dropped.
std::vector<std::pair<double, double>> thin(const std::vector<std::pair<double, double>>& points, size_t columns = 400);

std::string legend(const std::vector<std::pair<std::string, int>>& entries);  // name and colour

struct Segment {
  std::string name;
  double seconds = 0;
  int color = 0;
};
// One row per bar, segments side by side, scaled to the longest bar. With a single bar the legend
// holds the values.
struct StackedBars {
  std::string title;
  std::vector<std::pair<std::string, std::vector<Segment>>> bars;
};
std::string draw_stacked(const StackedBars& chart);

struct IntervalBar {
  std::string name;
  double value = 0, low = 0, high = 0;  // percent
  bool has_interval = false;
  double marker = 0;  // e.g. the prediction
  bool has_marker = false;
};
struct IntervalChart {
  std::string title, marker_name;
  std::vector<IntervalBar> bars;
};
std::string draw_intervals(const IntervalChart& chart);

}  // namespace redline::report
