// What a whole run at another time should find, from the confirming blocks alone. Pure.
#pragma once

#include <span>

#include "measure/statistics.h"

namespace redline::tune {

// The interval of the confirming blocks, widened for the noise of that other run, at least 1.5 % to either side, and
// for a machine that is not always equally fast: how the ratio follows the machine's speed is seen in the blocks
// themselves
// (`reference`, `tuned`: seconds per sample of each confirming block), as far as they show it, and how that speed
// wanders in every block the reference ran in (`reference_seen`).
measure::Interval promised_interval(const measure::RatioEstimate& confirmed, std::span<const double> reference,
                                    std::span<const double> tuned, std::span<const double> reference_seen);

}  // namespace redline::tune
