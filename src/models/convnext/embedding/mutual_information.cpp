#include "models/convnext/embedding/mutual_information.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/check.h"

namespace redline::models::embedding {

namespace {

double entropy_of(const std::map<int64_t, double>& counts, double n) {
  double sum = 0.0;
  for (const auto& [label, count] : counts) sum -= count / n * std::log(count / n);
  return sum;
}

}  // namespace

double normalized_mutual_information(std::span<const int64_t> a, std::span<const int64_t> b) {
  REDLINE_CHECK(a.size() == b.size(), "both group the same items");
  std::map<int64_t, double> of_a, of_b;
  std::map<std::pair<int64_t, int64_t>, double> of_both;
  for (size_t i = 0; i < a.size(); ++i) {
    ++of_a[a[i]];
    ++of_b[b[i]];
    ++of_both[{a[i], b[i]}];
  }
  if (of_a.size() <= 1 && of_b.size() <= 1) return 1.0;
  const auto n = static_cast<double>(a.size());
  double information = 0.0;
  for (const auto& [pair, count] : of_both)
    information += count / n * std::log(count * n / (of_a[pair.first] * of_b[pair.second]));
  if (information <= std::numeric_limits<double>::epsilon()) return 0.0;
  return information / (0.5 * (entropy_of(of_a, n) + entropy_of(of_b, n)));
}

}  // namespace redline::models::embedding
