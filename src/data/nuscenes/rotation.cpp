#include "data/nuscenes/rotation.h"

#include <cmath>

namespace redline::data::nuscenes {

namespace {

double sum_of_squares(const Quaternion& q) { return q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]; }

}  // namespace

Matrix3 rotation_matrix(const Quaternion& given) {
  Quaternion q = given;
  const double squares = sum_of_squares(q);
  if (std::abs(1.0 - squares) >= 1e-14 && squares > 0.0)
    for (double& part : q) part /= std::sqrt(squares);
  const auto [w, x, y, z] = q;
  // The product of the matrices that multiply by q from the left and by its conjugate from the right, without the first
  // row and column. Each sum is fused and in this order, as numpy's product on processors of today: entries that are 0
  // in exact arithmetic then have the same small remainders.
  const double left[4][4] = {{w, -x, -y, -z}, {x, w, -z, y}, {y, z, w, -x}, {z, -y, x, w}};
  const double right[4][4] = {{w, -x, -y, -z}, {x, w, z, -y}, {y, -z, w, x}, {z, y, -x, w}};
  Matrix3 out{};
  for (int i = 1; i < 4; ++i)
    for (int j = 1; j < 4; ++j) {
      double sum = 0.0;
      for (int k = 0; k < 4; ++k) sum = std::fma(left[i][k], right[j][k], sum);
      out[static_cast<size_t>(3 * (i - 1) + j - 1)] = sum;
    }
  return out;
}

Quaternion inverse(const Quaternion& q) {
  const double squares = sum_of_squares(q);
  return {q[0] / squares, -q[1] / squares, -q[2] / squares, -q[3] / squares};
}

Quaternion product(const Quaternion& a, const Quaternion& b) {
  return {a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3], a[1] * b[0] + a[0] * b[1] - a[3] * b[2] + a[2] * b[3],
          a[2] * b[0] + a[3] * b[1] + a[0] * b[2] - a[1] * b[3], a[3] * b[0] - a[2] * b[1] + a[1] * b[2] + a[0] * b[3]};
}

Vector3 rotate(const Matrix3& m, const Vector3& v) {
  return {m[0] * v[0] + m[1] * v[1] + m[2] * v[2], m[3] * v[0] + m[4] * v[1] + m[5] * v[2],
          m[6] * v[0] + m[7] * v[1] + m[8] * v[2]};
}

}  // namespace redline::data::nuscenes
