#include "tune/search/acquisition.h"

#include <algorithm>
#include <cmath>

namespace redline::tune {

double expected_positive(double z) {
  const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * M_PI);
  return density + z * 0.5 * std::erfc(-z / std::sqrt(2.0));
}

// The largest of lines over z is a chain of some of them; between two neighbours of that chain the choice changes.
double expected_gain(std::vector<Prospect> prospects) {
  std::sort(prospects.begin(), prospects.end(), [](const Prospect& x, const Prospect& y) {
    return x.slope != y.slope ? x.slope < y.slope : x.mean < y.mean;
  });
  std::vector<Prospect> chain;
  std::vector<double> from;  // where each line of the chain begins to be the largest
  for (const Prospect& line : prospects) {
    if (!chain.empty() && line.slope - chain.back().slope < 1e-12) {
      if (line.mean <= chain.back().mean) continue;
      chain.pop_back(), from.pop_back();
    }
    double begin = -HUGE_VAL;
    while (!chain.empty()) {
      begin = (chain.back().mean - line.mean) / (line.slope - chain.back().slope);
      if (begin > from.back()) break;
      chain.pop_back(), from.pop_back();
      begin = -HUGE_VAL;
    }
    chain.push_back(line), from.push_back(begin);
  }
  double gain = 0;
  for (size_t i = 1; i < chain.size(); ++i)
    gain += (chain[i].slope - chain[i - 1].slope) * expected_positive(-std::abs(from[i]));
  return gain;
}

}  // namespace redline::tune
