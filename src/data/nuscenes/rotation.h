// Quaternions (w, x, y, z) as pyquaternion computes with them, which nuScenes' boxes and calibration are defined by.
#pragma once

#include <array>

#include "data/nuscenes/tables.h"

namespace redline::data::nuscenes {

using Matrix3 = std::array<double, 9>;  // row-major

Matrix3 rotation_matrix(const Quaternion& q);  // of q / |q|
Quaternion inverse(const Quaternion& q);
Quaternion product(const Quaternion& a, const Quaternion& b);  // first b, then a
Vector3 rotate(const Matrix3& m, const Vector3& v);

}  // namespace redline::data::nuscenes
