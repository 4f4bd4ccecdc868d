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

// Input interval [begin, end) of an axis of in_size pixels becomes out_size pixels; `reverse` gives them back to front.
ResizeAxis make_axis(int32_t in_size, float begin, float end, int32_t out_size, ResizeFilter filter,
                     bool reverse = false);

// The weights as Pillow multiplies by them: whole numbers with so many bits behind the point.
inline constexpr int kPrecisionBits = 32 - 8 - 2;
std::vector<int32_t> fixed_weights(const ResizeAxis& axis);

// Box or whole picture, checked against the picture.
CropBox checked_box(const RgbView& source, const ResizeRequest& request);

}  // namespace redline::data::codecs
