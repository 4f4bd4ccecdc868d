// A symmetric positive matrix as L L^T: all the algebra that the search needs. Dense and plain, for tens of rows.
#pragma once

#include <cstddef>
#include <vector>

namespace redline::tune {

class Cholesky {
 public:
  Cholesky() = default;
  // Row by row, n x n; only the lower half is read. A pivot that rounding made too small is lifted, so that rows which
  // say the same twice do no harm.
  Cholesky(std::vector<double> matrix, size_t n);

  size_t size() const { return n_; }
  std::vector<double> lower_solve(std::vector<double> right) const;  // L^-1 right
  std::vector<double> solve(std::vector<double> right) const;        // (L L^T)^-1 right
  double log_determinant() const;

 private:
  double at(size_t row, size_t column) const { return lower_[row * n_ + column]; }

  std::vector<double> lower_;
  size_t n_ = 0;
};

double dot(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace redline::tune
