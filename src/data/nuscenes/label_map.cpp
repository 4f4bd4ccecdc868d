#include "data/nuscenes/label_map.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/nuscenes/fill_polygon.h"
#include "data/nuscenes/rotation.h"

namespace redline::data::nuscenes {

LabelGrid::LabelGrid(const std::vector<double>& xbound, const std::vector<double>& ybound, int64_t num_classes)
    : rows(static_cast<int64_t>((xbound[1] - xbound[0]) / xbound[2])),
      columns(static_cast<int64_t>((ybound[1] - ybound[0]) / ybound[2])),
      classes(num_classes),
      step{static_cast<float>(xbound[2]), static_cast<float>(ybound[2])},
      first{static_cast<float>(xbound[0] + xbound[2] / 2.0), static_cast<float>(ybound[0] + ybound[2] / 2.0)} {}

namespace {

int64_t cell_of(double place, float first, float step) {
  const double at = (place - static_cast<double>(first) + static_cast<double>(step / 2.0f)) / static_cast<double>(step);
  return static_cast<int64_t>(std::nearbyint(std::fmin(std::fmax(at, -1e9), 1e9)));  // to even at halves
}

// Poses of the world as the car of a frame sees them.
struct FromTheCar {
  explicit FromTheCar(const KeyFrame& of) : frame(of), back(inverse(of.car.rotation)), turn(rotation_matrix(back)) {}
  Vector3 centre(const Annotation& box) const {
    Vector3 out;
    for (size_t axis = 0; axis < 3; ++axis) out[axis] = box.pose.translation[axis] - frame.car.translation[axis];
    return rotate(turn, out);
  }
  Matrix3 heading(const Annotation& box) const { return rotation_matrix(product(back, box.pose.rotation)); }
  const KeyFrame& frame;
  Quaternion back;
  Matrix3 turn;
};

}  // namespace

Array label_map(const Tables& tables, const KeyFrame& frame, const LabelGrid& grid) {
  Array out = Array::zeros(Dtype::F32, {grid.classes, grid.rows, grid.columns});
  const FromTheCar from(frame);
  for (int64_t i = 0; i < frame.num_annotations; ++i) {
    const Annotation& box = tables.annotations[static_cast<size_t>(frame.first_annotation + i)];
    const Vector3 centre = from.centre(box);
    const Matrix3 heading = from.heading(box);
    const double length = box.size[1] / 2, width = box.size[0] / 2, height = box.size[2] / 2;
    // Front right, front left, back left, back right, on the ground.
    const Vector3 corners[4] = {
        {length, -width, -height}, {length, width, -height}, {-length, width, -height}, {-length, -width, -height}};
    Cell cells[4];
    for (int k = 0; k < 4; ++k) {
      const Vector3 at = rotate(heading, corners[k]);
      cells[k] = {cell_of(at[1] + centre[1], grid.first[1], grid.step[1]),
                  cell_of(at[0] + centre[0], grid.first[0], grid.step[0])};
    }
    for (int64_t c = 0; c < grid.classes; ++c)
      if ((box.classes >> c & 1) != 0)
        fill_polygon(cells, grid.rows, grid.columns, 1.0f, out.as<float>().data() + c * grid.rows * grid.columns);
  }
  return out;
}

Array box_corners(const Tables& tables, const KeyFrame& frame, int64_t most) {
  Array out = Array::zeros(Dtype::F32, {most, 8, 3});
  const FromTheCar from(frame);
  std::vector<std::pair<double, int64_t>> nearest;
  for (int64_t i = 0; i < frame.num_annotations; ++i) {
    const Vector3 centre = from.centre(tables.annotations[static_cast<size_t>(frame.first_annotation + i)]);
    nearest.emplace_back(std::hypot(centre[0], centre[1]), i);
  }
  std::sort(nearest.begin(), nearest.end());
  float* to = out.as<float>().data();
  for (size_t n = 0; n < std::min(nearest.size(), static_cast<size_t>(most)); ++n) {
    const Annotation& box = tables.annotations[static_cast<size_t>(frame.first_annotation + nearest[n].second)];
    const Vector3 centre = from.centre(box);
    const Matrix3 heading = from.heading(box);
    for (int k = 0; k < 8; ++k) {
      const double side = k % 4 == 0 || k % 4 == 3 ? -0.5 : 0.5, up = k % 4 < 2 ? 0.5 : -0.5;
      const Vector3 at = rotate(heading, {(k < 4 ? 0.5 : -0.5) * box.size[1], side * box.size[0], up * box.size[2]});
      for (size_t axis = 0; axis < 3; ++axis) *to++ = static_cast<float>(at[axis] + centre[axis]);
    }
  }
  return out;
}

}  // namespace redline::data::nuscenes
