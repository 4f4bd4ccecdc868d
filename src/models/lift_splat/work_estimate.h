// Operations of forward and backward of one sample: products and convolutions; the rest is small beside them.
#pragma once

#include "models/lift_splat/options.h"

namespace redline::models::lift_splat {
double sample_flops(const Options& options, int64_t cameras);
}  // namespace redline::models::lift_splat
