// Pictures turned, sheared and moved with interpolation, as Pillow's transform(AFFINE) and rotate() do it: a pixel of
// the result asks where it came from; what came from outside is filled.
#pragma once

#include <array>

#include "data/array.h"
#include "data/codecs/image_resize.h"

namespace redline::data {

// (x, y) of the result comes from (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]), pixels' centres being at .5.
using AffineMap = std::array<double, 6>;

Array affine_rgb(const RgbView& source, const AffineMap& from, ResizeFilter filter, std::array<uint8_t, 3> fill);
// Counter-clockwise about the centre, same size.
Array rotate_rgb(const RgbView& source, double degrees, ResizeFilter filter, std::array<uint8_t, 3> fill);

}  // namespace redline::data
