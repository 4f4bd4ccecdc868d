// A run's curves, each over steps, samples and time; one click (without a script) changes the axis of all.
#pragma once

#include <string>

#include "report/page.h"

namespace redline::report {

// `label` is what a run is called in legends.
std::string draw_curves(const Page& page, const std::vector<std::string>& labels);

// Exponential average over about `window` values, corrected at its beginning.
std::vector<double> smoothed(const std::vector<double>& values, double window);

}  // namespace redline::report
