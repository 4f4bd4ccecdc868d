// Two things are drawn: the boundary, line by line as Bresenham's algorithm steps, and for each row the stretches
// between the edges, whose places are kept in fixed point with 16 bits. An edge that leaves the map is described by the
// part of it that lies on the map (in whole cells), as OpenCV does: its slope is a little different then.
#include "data/nuscenes/fill_polygon.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace redline::data::nuscenes {

namespace {

constexpr int kBits = 16;
constexpr int64_t kOne = int64_t{1} << kBits;

struct MapSize {
  int64_t rows, columns;
  bool holds(const Cell& c) const { return c.column >= 0 && c.row >= 0 && c.column < columns && c.row < rows; }
};

enum Side : int { kLeft = 1, kRight = 2, kAbove = 4, kBelow = 8 };

int side_across(const MapSize& map, int64_t column) {
  return (column < 0 ? kLeft : 0) | (column >= map.columns ? kRight : 0);
}
int side_of(const MapSize& map, const Cell& c) {
  return side_across(map, c.column) | (c.row < 0 ? kAbove : 0) | (c.row >= map.rows ? kBelow : 0);
}

// How far `target - from` along one axis moves along the other, in double, cut towards zero.
int64_t along(int64_t distance, int64_t other, int64_t length) {
  return static_cast<int64_t>(static_cast<double>(distance) * static_cast<double>(other) / static_cast<double>(length));
}

// Cuts the line to the map; false when none of it is left. Rows first, then columns, one end after the other: the
// second end's cut uses the first one's new place.
bool cut_to_map(const MapSize& map, Cell& a, Cell& b) {
  int side_a = side_of(map, a), side_b = side_of(map, b);
  if ((side_a & side_b) != 0) return false;
  if ((side_a | side_b) == 0) return true;
  const auto to_row = [&](Cell& end, int& side) {
    if ((side & (kAbove | kBelow)) == 0) return;
    const int64_t row = (side & kBelow) != 0 ? map.rows - 1 : 0;
    end.column += along(row - end.row, b.column - a.column, b.row - a.row);
    end.row = row;
    side = side_across(map, end.column);
  };
  const auto to_column = [&](Cell& end, int& side) {
    if (side == 0) return;
    const int64_t column = side == kLeft ? 0 : map.columns - 1;
    end.row += along(column - end.column, b.row - a.row, b.column - a.column);
    end.column = column;
    side = 0;
  };
  to_row(a, side_a);
  to_row(b, side_b);
  if ((side_a & side_b) == 0 && (side_a | side_b) != 0) {
    to_column(a, side_a);
    to_column(b, side_b);
  }
  return (side_a | side_b) == 0;
}

// The line from left to right; the longer direction makes a step each time, the other when the error says so.
void draw_line(const MapSize& map, Cell a, Cell b, float value, float* cells) {
  if ((!map.holds(a) || !map.holds(b)) && !cut_to_map(map, a, b)) return;
  if (b.column < a.column) std::swap(a, b);
  const int64_t across = b.column - a.column, down = std::abs(b.row - a.row), down_step = b.row < a.row ? -1 : 1;
  const bool steep = down > across;
  const int64_t far = steep ? down : across, near = steep ? across : down;
  int64_t error = far - 2 * near;
  for (int64_t step = 0; step <= far; ++step) {
    cells[a.row * map.columns + a.column] = value;
    const bool aside = error < 0;
    error += (aside ? 2 * far : 0) - 2 * near;
    if (steep) {
      a.row += down_step;
      a.column += aside ? 1 : 0;
    } else {
      a.column += 1;
      a.row += aside ? down_step : 0;
    }
  }
}

struct Edge {
  int64_t top, bottom;  // rows, the bottom one left out
  int64_t at, slope;    // column at the top row and change per row, fixed point
};

Edge edge_of(const MapSize& map, const Cell& a, const Cell& b) {
  Cell cut_a = a, cut_b = b;
  if (!map.holds(a) || !map.holds(b)) cut_to_map(map, cut_a, cut_b);
  const int64_t column_a = cut_a.column << kBits, column_b = cut_b.column << kBits;
  // A cut that leaves one row keeps the whole edge's rows: the edge then stands upright where it was cut.
  const bool flat = cut_a.row == cut_b.row;
  const int64_t row_a = flat ? a.row : cut_a.row, row_b = flat ? b.row : cut_b.row;
  const int64_t slope = (column_b - column_a) / (row_b - row_a);
  if (a.row < b.row) return {a.row, b.row, column_a + (a.row - row_a) * slope, slope};
  return {b.row, a.row, column_b + (b.row - row_b) * slope, slope};
}

}  // namespace

void fill_polygon(std::span<const Cell> corners, int64_t rows, int64_t columns, float value, float* cells) {
  const MapSize map{rows, columns};
  std::vector<Edge> edges;
  for (size_t i = 0; i < corners.size(); ++i) {
    const Cell &a = corners[i == 0 ? corners.size() - 1 : i - 1], &b = corners[i];
    draw_line(map, a, b, value, cells);
    if (a.row != b.row) edges.push_back(edge_of(map, a, b));
  }
  if (edges.size() < 2) return;
  int64_t first = edges[0].top, last = edges[0].bottom;
  for (const Edge& edge : edges) first = std::min(first, edge.top), last = std::max(last, edge.bottom);
  std::vector<int64_t> places;
  for (int64_t row = std::max<int64_t>(first, 0); row < std::min(last, rows); ++row) {
    places.clear();
    for (const Edge& edge : edges)
      if (row >= edge.top && row < edge.bottom) places.push_back(edge.at + (row - edge.top) * edge.slope);
    std::sort(places.begin(), places.end());
    for (size_t i = 0; i + 1 < places.size(); i += 2) {
      const int64_t from = std::max<int64_t>((places[i] + kOne - 1) >> kBits, 0),
                    to = std::min(places[i + 1] >> kBits, columns - 1);
      for (int64_t column = from; column <= to; ++column) cells[row * columns + column] = value;
    }
  }
}

}  // namespace redline::data::nuscenes
