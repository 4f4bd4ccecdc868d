// Floating-point operations of one clip, from the sizes alone.
#pragma once

#include "models/speech_ssl/options.h"

namespace redline::models::speech {

// Forward and backward of one clip of `seconds`; products and convolutions only (two per multiply-add), as GEMM rates
// are quoted.
double clip_flops(const ModelOptions& options, double seconds);

}  // namespace redline::models::speech
