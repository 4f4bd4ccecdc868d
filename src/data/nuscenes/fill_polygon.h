// Fills a polygon of whole cells on a map, its boundary included: the cells that OpenCV's fillPoly sets (8-connected
// lines, no anti-aliasing), so that labels equal those of projects that draw with it.
#pragma once

#include <cstdint>
#include <span>

namespace redline::data::nuscenes {

struct Cell {
  int64_t column = 0, row = 0;
};

// `map` is row-major [rows, columns]; corners may lie anywhere.
void fill_polygon(std::span<const Cell> corners, int64_t rows, int64_t columns, float value, float* map);

}  // namespace redline::data::nuscenes
