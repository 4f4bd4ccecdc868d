#include "measure/student.h"

#include <cmath>

#include "core/check.h"

namespace redline::measure {

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// Exact for whole degrees of freedom (Abramowitz & Stegun 26.7.3 and 26.7.4).
double student_cdf(double x, int n) {
  REDLINE_CHECK(n >= 1, "a t statistic has a degree of freedom");
  const double theta = std::atan(std::abs(x) / std::sqrt(static_cast<double>(n)));
  const double c = std::cos(theta), s = std::sin(theta);
  double within = 0;
  if (n % 2 == 1) {
    double term = c, sum = n > 1 ? c : 0.0;
    for (int k = 3; k <= n - 2; k += 2) {
      term *= c * c * (k - 1) / k;
      sum += term;
    }
    within = 2 / M_PI * (theta + (n > 1 ? s * sum : 0.0));
  } else {
    double term = 1, sum = 1;
    for (int k = 2; k <= n - 2; k += 2) {
      term *= c * c * (k - 1) / k;
      sum += term;
    }
    within = s * sum;
  }
  return x >= 0 ? 0.5 + within / 2 : 0.5 - within / 2;
}

double student_quantile(double p, int n) {
  double low = 0, high = 1e3;
  while (student_cdf(high, n) < p && high < 1e12) high *= 10;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (student_cdf(middle, n) < p ? low : high) = middle;
  }
  return high;
}

// The normal probability at every possible spread, weighted by how likely that spread is: Simpson's rule over
// s = sqrt(chi squared / n), whose density is narrow around 1. Series are faster and fail for large shifts.
double noncentral_student_cdf(double x, int n, double shift) {
  REDLINE_CHECK(n >= 1, "a t statistic has a degree of freedom");
  const double half = 0.5 * n;
  const double log_constant = std::log(2.0) + half * std::log(half) - std::lgamma(half);
  constexpr int kPanels = 2000;
  const double end = 1 + 9 / std::sqrt(2.0 * n), step = end / kPanels;
  double sum = 0;
  for (int i = 0; i <= kPanels; ++i) {
    const double s = i * step;
    const double density =
        s > 0 ? std::exp(log_constant + (n - 1) * std::log(s) - half * s * s) : (n == 1 ? std::exp(log_constant) : 0.0);
    sum += (i == 0 || i == kPanels ? 1 : i % 2 == 1 ? 4 : 2) * density * normal_cdf(x * s - shift);
  }
  return std::fmin(1.0, std::fmax(0.0, sum * step / 3));
}

double one_sided_power(int n, double effect, double level) {
  if (n < 2) return 0;
  const double shift = effect * std::sqrt(static_cast<double>(n));
  return 1 - noncentral_student_cdf(student_quantile(1 - level, n - 1), n - 1, shift);
}

int values_needed(double effect, double level, double power, int most) {
  if (!(effect > 0)) return most + 1;
  int low = 2, high = 4;
  while (high <= most && one_sided_power(high, effect, level) < power) {
    low = high;
    high *= 2;
  }
  if (high > most && one_sided_power(most, effect, level) < power) return most + 1;
  high = high > most ? most : high;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (one_sided_power(middle, effect, level) < power)
      low = middle + 1;
    else
      high = middle;
  }
  return high;
}

}  // namespace redline::measure
