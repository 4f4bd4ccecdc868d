// Picture operations besides resize: nearest rotation about the centre as Pillow's rotate() does it, crop with black
// outside (as Pillow's crop()), horizontal flip. U8 [H, W, 3] in and out.
#pragma once

#include "data/array.h"
#include "data/codecs/image_resize.h"

namespace redline::data {

Array crop_rgb(const RgbView& source, int32_t x0, int32_t y0, int32_t width, int32_t height);
Array flip_rgb(const RgbView& source);
// Counter-clockwise by `degrees`, same size, nearest neighbour, black outside.
Array rotate_rgb(const RgbView& source, double degrees);

}  // namespace redline::data
