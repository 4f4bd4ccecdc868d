#include "tune/search/cholesky.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace redline::tune {

Cholesky::Cholesky(std::vector<double> matrix, size_t n) : lower_(std::move(matrix)), n_(n) {
  REDLINE_CHECK(lower_.size() == n * n, "a square matrix");
  for (size_t j = 0; j < n; ++j) {
    double* const row_j = &lower_[j * n];
    const double least = 1e-12 * std::max(1e-12, row_j[j]);
    for (size_t i = j; i < n; ++i) {
      double* const row_i = &lower_[i * n];
      double sum = row_i[j];
      for (size_t k = 0; k < j; ++k) sum -= row_i[k] * row_j[k];
      row_i[j] = i == j ? std::sqrt(std::max(least, sum)) : sum / row_j[j];
    }
  }
}

std::vector<double> Cholesky::lower_solve(std::vector<double> right) const {
  for (size_t i = 0; i < n_; ++i) {
    for (size_t k = 0; k < i; ++k) right[i] -= at(i, k) * right[k];
    right[i] /= at(i, i);
  }
  return right;
}

std::vector<double> Cholesky::solve(std::vector<double> right) const {
  right = lower_solve(std::move(right));
  for (size_t i = n_; i-- > 0;) {
    for (size_t k = i + 1; k < n_; ++k) right[i] -= at(k, i) * right[k];
    right[i] /= at(i, i);
  }
  return right;
}

double Cholesky::log_determinant() const {
  double sum = 0;
  for (size_t i = 0; i < n_; ++i) sum += 2 * std::log(at(i, i));
  return sum;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace redline::tune
