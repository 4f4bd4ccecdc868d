// What changes colours and leaves pixels where they are, as Pillow's ImageOps and ImageEnhance do it. U8 [H, W, 3] in
// and out; the source may have any stride.
#pragma once

#include "data/array.h"
#include "data/codecs/image_resize.h"

namespace redline::data {

Array autocontrast_rgb(const RgbView& source);  // each channel stretched to 0 ... 255
Array equalize_rgb(const RgbView& source);      // each channel's histogram made flat
Array invert_rgb(const RgbView& source);
Array posterize_rgb(const RgbView& source, int bits);       // the upper bits kept, 0 to 8
Array solarize_rgb(const RgbView& source, int threshold);   // inverted from the threshold on
Array solarize_add_rgb(const RgbView& source, int amount);  // values below 128 made lighter

// The picture moved away from (factor above 1) or towards (below 1) one that lacks the property: black, its mean grey,
// its grey self, a smoothed one.
enum class Enhance : uint8_t { Brightness, Contrast, Color, Sharpness };
Array enhance_rgb(const RgbView& source, Enhance what, double factor);

// Pillow's convert("L"): ITU-R 601 in 16-bit fixed point.
inline uint8_t grey_of(const uint8_t* rgb) {
  return static_cast<uint8_t>((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}
// In place: all three channels become the grey.
void make_grey(uint8_t* pixels, int64_t count);

}  // namespace redline::data
