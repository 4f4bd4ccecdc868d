#include "doctor/rules/cost_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "measure/statistics.h"

namespace redline::doctor {

namespace {

using Row3 = std::array<double, 3>;
using Matrix3 = std::array<Row3, 3>;

struct Point {
  Row3 x;  // pieces, items, padding
  double seconds;
};

double compute_seconds(const measure::StepRow& row) {
  return static_cast<double>(row.phase_ns[static_cast<size_t>(measure::Phase::Forward)] +
                             row.phase_ns[static_cast<size_t>(measure::Phase::Backward)]) *
         1e-9;
}

// Gauss-Jordan with pivots; nullopt when the columns do not tell each other apart.
std::optional<Matrix3> inverse(Matrix3 m) {
  Matrix3 result{};
  for (size_t i = 0; i < 3; ++i) result[i][i] = 1;
  for (size_t column = 0; column < 3; ++column) {
    size_t pivot = column;
    for (size_t r = column + 1; r < 3; ++r)
      if (std::abs(m[r][column]) > std::abs(m[pivot][column])) pivot = r;
    if (std::abs(m[pivot][column]) < 1e-9) return std::nullopt;
    std::swap(m[column], m[pivot]);
    std::swap(result[column], result[pivot]);
    const double scale = 1.0 / m[column][column];
    for (size_t k = 0; k < 3; ++k) m[column][k] *= scale, result[column][k] *= scale;
    for (size_t r = 0; r < 3; ++r) {
      if (r == column) continue;
      const double factor = m[r][column];
      for (size_t k = 0; k < 3; ++k) {
        m[r][k] -= factor * m[column][k];
        result[r][k] -= factor * result[column][k];
      }
    }
  }
  return result;
}

struct Solution {
  Row3 weights;
  Matrix3 covariance;
};

// Columns must be scaled to about 1.
std::optional<Solution> least_squares(const std::vector<Point>& points) {
  Matrix3 normal{};
  Row3 right{};
  for (const Point& p : points)
    for (size_t i = 0; i < 3; ++i) {
      right[i] += p.x[i] * p.seconds;
      for (size_t j = 0; j < 3; ++j) normal[i][j] += p.x[i] * p.x[j];
    }
  // Batches of one sample have no padding: its column says nothing, and its cost stays 0.
  if (normal[2][2] <= 0) normal[2][2] = 1;
  const auto inverted = inverse(normal);
  if (!inverted) return std::nullopt;
  Solution solution{{}, *inverted};
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 3; ++j) solution.weights[i] += (*inverted)[i][j] * right[j];
  double squares = 0;
  for (const Point& p : points) {
    double miss = p.seconds;
    for (size_t i = 0; i < 3; ++i) miss -= solution.weights[i] * p.x[i];
    squares += miss * miss;
  }
  const double variance = squares / std::max(1.0, static_cast<double>(points.size()) - 3.0);
  for (Row3& row : solution.covariance)
    for (double& value : row) value *= variance;
  return solution;
}

std::vector<Point> scaled_points(std::span<const measure::StepRow> rows, Row3& scale) {
  std::vector<Point> points;
  for (const measure::StepRow& row : rows) {
    if (row.micro_batches == 0 || row.items <= 0) continue;
    points.push_back({{static_cast<double>(row.micro_batches), static_cast<double>(row.items),
                       static_cast<double>(row.padded_items - row.items)},
                      compute_seconds(row)});
    for (size_t i = 0; i < 3; ++i) scale[i] = std::max(scale[i], points.back().x[i]);
  }
  for (Point& point : points)
    for (size_t i = 0; i < 3; ++i)
      if (scale[i] > 0) point.x[i] /= scale[i];
  return points;
}

// Steps that were held up by something else (a neighbour on the machine) say nothing about items.
void drop_outliers(std::vector<Point>& points, const Solution& fit) {
  std::vector<double> misses;
  for (const Point& p : points) {
    double miss = p.seconds;
    for (size_t i = 0; i < 3; ++i) miss -= fit.weights[i] * p.x[i];
    misses.push_back(miss);
  }
  const double middle = measure::median(misses), spread = measure::robust_spread(misses);
  size_t kept = 0;
  for (size_t i = 0; i < points.size(); ++i)
    if (std::abs(misses[i] - middle) <= 4 * spread) points[kept++] = points[i];
  points.resize(kept);
}

}  // namespace

CostFit fit_costs(std::span<const measure::StepRow> rows) {
  constexpr size_t kLeastSteps = 20;
  CostFit fit;
  Row3 scale{};
  std::vector<Point> points = scaled_points(rows, scale);
  if (points.size() < kLeastSteps) return fit;
  auto solution = least_squares(points);
  if (!solution) return fit;
  drop_outliers(points, *solution);
  if (points.size() < kLeastSteps) return fit;
  solution = least_squares(points);
  if (!solution) return fit;
  Row3 mean{};
  double seconds = 0;
  for (const Point& p : points) {
    seconds += p.seconds / static_cast<double>(points.size());
    for (size_t i = 0; i < 3; ++i) mean[i] += p.x[i] / static_cast<double>(points.size());
  }
  fit.saw_padding = scale[2] > 0;
  if (seconds <= 0) return fit;
  const auto share = [&](size_t i) { return std::clamp(solution->weights[i] * mean[i] / seconds, 0.0, 1.0); };
  const auto error = [&](size_t i) { return std::sqrt(solution->covariance[i][i]) * mean[i] / seconds; };
  fit.fixed_share = share(0);
  fit.fixed_error = error(0);
  fit.padding_share = share(2);
  fit.padding_error = error(2);
  double* const each[3] = {&fit.piece_seconds, &fit.item_seconds, &fit.padding_seconds};
  for (size_t i = 0; i < 3; ++i)
    if (scale[i] > 0) *each[i] = std::max(0.0, solution->weights[i] / scale[i]);
  fit.known = fit.padding_error < 0.05 && fit.fixed_error < 0.1;
  return fit;
}

}  // namespace redline::doctor
