// A forecast for more ranks, shown.
#pragma once

#include <string>

#include "doctor/scaling.h"

namespace redline::report {

std::string scale_text(const doctor::ScaleBasis& basis, const doctor::Network& network,
                       const doctor::Forecast& forecast, int width);
std::string scale_json(const doctor::ScaleBasis& basis, const doctor::Network& network,
                       const doctor::Forecast& forecast);

}  // namespace redline::report
