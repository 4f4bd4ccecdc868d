// Operations of forward and backward of one sample: products and convolutions; the rest is small beside them.
#pragma once

#include "models/lift_splat/options.h"

namespace redline::models::lift_splat {
double sample_flops(const Options& options, int64_t cameras);
// What the fused kernels in float32 really multiply and add in products for a batch without stochastic depth: 3x3
// convolutions as 36 products of tiles, those of enlarged maps on the small ones, none for padded places. The sums
// around them (tiles' transforms, taps, norms) are left out.
double product_flops(const Options& options, int64_t samples, int64_t cameras);
}  // namespace redline::models::lift_splat
