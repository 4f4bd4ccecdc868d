#include "draw/ticks.h"

#include <algorithm>
#include <cmath>

namespace redline::draw {

namespace {

// A power of ten not above `rough`, to be multiplied by 1, 2, 5 or 10.
double power_below(double rough) { return std::pow(10.0, std::floor(std::log10(rough))); }

}  // namespace

std::vector<double> ticks_around(double low, double high) {
  if (!(high > low)) high = low + std::max(1.0, std::abs(low));
  // Rounded up: a step that is too small would need too many ticks.
  const double rough = (high - low) / 4.0, power = power_below(rough);
  double step = power;
  for (double factor : {1.0, 2.0, 5.0, 10.0})
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  std::vector<double> at;
  const double first = std::floor(low / step + 1e-9);
  for (double k = first;; k += 1.0) {
    at.push_back(k * step);
    if (at.back() >= high - 1e-9 * step) break;
  }
  return at;
}

std::vector<double> ticks_within(double low, double high, int count) {
  // Rounded to the nearest: the axis ends where the data does, so the count may vary.
  const double rough = (high - low) / count, power = power_below(rough), share = rough / power;
  const double step = (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10) * power;
  std::vector<double> at;
  for (double value = std::ceil(low / step) * step; value <= high + 1e-9 * step; value += step)
    at.push_back(std::abs(value) < 1e-9 * step ? 0 : value);
  return at;
}

}  // namespace redline::draw
