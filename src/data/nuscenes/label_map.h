// The occupied cells of a key frame: each annotation's ground rectangle, seen from the car, rounded to cells and
// filled. Rounding and filling are lift-splat-shoot's (numpy's round half to even, OpenCV's fillPoly); its label grid
// is half a cell off the grid that points are splatted into, and so is this one.
#pragma once

#include <cstdint>
#include <vector>

#include "data/array.h"
#include "data/nuscenes/tables.h"

namespace redline::data::nuscenes {

struct LabelGrid {
  LabelGrid(const std::vector<double>& xbound, const std::vector<double>& ybound, int64_t num_classes);
  int64_t rows, columns, classes;  // x is rows, y is columns
  float step[2], first[2];         // size of a cell and middle of the first one, as float32
};

Array label_map(const Tables& tables, const KeyFrame& frame, const LabelGrid& grid);  // F32 [classes, rows, columns]
// F32 [most, 8, 3]: corners of the annotations nearest to the car, seen from it; front face first, zeros beyond their
// number.
Array box_corners(const Tables& tables, const KeyFrame& frame, int64_t most);

}  // namespace redline::data::nuscenes
