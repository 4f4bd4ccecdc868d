// What one more experiment is worth for a choice among several values, none of which is known: the knowledge gradient
// in closed form (Frazier, Powell and Dayanik 2009, "The knowledge-gradient policy for correlated normal beliefs").
// Pure.
#pragma once

#include <vector>

namespace redline::tune {

// A value that is chosen by its mean, which an experiment will move by `slope` times a standard normal draw.
struct Prospect {
  double mean = 0, slope = 0;
};

// How much larger the largest mean is expected to be after the experiment than it is now.
double expected_gain(std::vector<Prospect> prospects);

// Standard normal: E[max(0, z + Z)].
double expected_positive(double z);

}  // namespace redline::tune
