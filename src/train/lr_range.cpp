#include "train/lr_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace redline::train {

namespace {

constexpr double kMemory = 0.9;    // of the smoothed loss, a step
constexpr double kFarAbove = 2.0;  // times the fall so far above the lowest: training broke
constexpr size_t kFewestPoints = 10;

// Least squares of the smoothed loss over ln(lr) in a window around `at`.
double slope_at(const std::vector<LrPoint>& points, size_t at, size_t half_width) {
  const size_t begin = at > half_width ? at - half_width : 0, end = std::min(points.size(), at + half_width + 1);
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (size_t i = begin; i < end; ++i, ++n) {
    const double x = std::log(points[i].lr), y = points[i].smoothed;
    sx += x, sy += y, sxx += x * x, sxy += x * y;
  }
  const double spread = n * sxx - sx * sx;
  return spread > 0 ? (n * sxy - sx * sy) / spread : 0;
}

}  // namespace

LrRange judge_lr_range(std::vector<LrPoint> points) {
  LrRange range;
  double average = 0, weight = 0, first = NAN, lowest = INFINITY;
  size_t lowest_at = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    LrPoint& point = points[i];
    average = kMemory * average + (1 - kMemory) * point.loss;
    weight = kMemory * weight + (1 - kMemory);
    point.smoothed = average / weight;
    if (i == 0) first = point.smoothed;
    const double rise = std::max(std::abs(first) * 0.05, kFarAbove * (first - lowest));
    if (!std::isfinite(point.loss) || (i >= kFewestPoints && point.smoothed > std::max(first, lowest) + rise)) {
      range.broke = point.lr;
      points.resize(i);
      break;
    }
    if (point.smoothed < lowest) lowest = point.smoothed, lowest_at = i;
  }
  range.points = std::move(points);
  if (range.points.size() < kFewestPoints) {
    range.sentence = fmt::format("Only {} steps before the loss broke: begin at a lower rate, or give more --steps.",
                                 range.points.size());
    return range;
  }
  range.lowest = range.points[lowest_at].lr;
  const size_t half_width = std::max<size_t>(2, range.points.size() / 20);
  double steepest = 0;
  for (size_t i = half_width; i <= lowest_at; ++i) {
    const double slope = slope_at(range.points, i, half_width);
    if (slope < steepest) steepest = slope, range.steepest = range.points[i].lr;
  }
  if (!range.steepest) {
    range.sentence = "The loss does not fall anywhere in this range: begin at a lower rate, or give more --steps.";
    return range;
  }
  range.sentence = fmt::format(
      "The loss falls fastest at {:.2g} and is lowest at {:.2g}{}. Begin with model.optim.lr={:.2g}.", *range.steepest,
      *range.lowest, range.broke ? fmt::format("; it breaks at {:.2g}", *range.broke) : "", *range.steepest);
  return range;
}

}  // namespace redline::train
