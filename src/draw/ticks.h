// Round numbers for an axis: steps of 1, 2 or 5 times a power of ten.
#pragma once

#include <vector>

namespace redline::draw {

// 2 to 6 ticks that cover [low, high]: the first is not above low, the last not below high. An empty range is widened.
std::vector<double> ticks_around(double low, double high);

// About `count` ticks that lie in [low, high]; high must be above low.
std::vector<double> ticks_within(double low, double high, int count);

}  // namespace redline::draw
