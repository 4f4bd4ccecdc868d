// The filter weights of one axis of a resize, as Pillow computes them (Resample.c, precompute_coeffs): shared by the
// fast path and the reference.
#pragma once

#include <cstdint>
#include <vector>

#include "data/codecs/image_resize.h"

namespace redline::data::codecs {

struct ResizeAxis {
  int32_t out_size = 0;
  int32_t max_count = 0;        // weights per output, at most
  std::vector<int32_t> first;   // [out_size] first input pixel
  std::vector<int32_t> count;   // [out_size]
  std::vector<double> weights;  // [out_size][max_count], summing to 1
};

// Columns and rows of a resize of a picture of this size.
struct ResizeAxes {
  ResizeAxis columns, rows;
};
ResizeAxes make_axes(const RgbView& source, const ResizeRequest& request);

// The weights as Pillow multiplies by them: whole numbers with so many bits behind the point.
inline constexpr int kPrecisionBits = 32 - 8 - 2;
std::vector<int32_t> fixed_weights(const ResizeAxis& axis);

}  // namespace redline::data::codecs
