// JPEG and PNG bytes from 8-bit RGB: for the generators, tests and tools.
#pragma once

#include <string>

#include "data/codecs/image_resize.h"

namespace redline::data {

std::string encode_jpeg(const RgbView& image, int quality = 90, bool subsample_chroma = true);
std::string encode_png(const RgbView& image, int compression_level = 3);

}  // namespace redline::data
