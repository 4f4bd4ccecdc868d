// Antialiased resize of 8-bit RGB as Pillow does it: two passes of a convolution whose support grows with the shrink
// factor, rounded to 8 bits between the passes. The fast path uses 16-bit coefficients (vpmaddwd), which differ from
// Pillow's 22-bit ones by one or two steps in rare pixels; reference::resize is Pillow's arithmetic bit for bit.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "data/array.h"

namespace redline::data {

enum class ResizeFilter : uint8_t { Bilinear, Bicubic };

// In source pixels, x1 and y1 exclusive; fractions are honoured as Pillow's resize(box=...) does.
struct CropBox {
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
};

// The part of a whole resize that is wanted: the picture made full_width x full_height, of that the result's size from
// (x, y). A box of the same part has fractions, which are rounded otherwise.
struct ResizeWindow {
  int32_t full_width = 0, full_height = 0, x = 0, y = 0;
};

struct ResizeRequest {
  int32_t width = 0, height = 0;              // of the result
  std::optional<CropBox> box = std::nullopt;  // nullopt: the whole picture
  ResizeFilter filter = ResizeFilter::Bicubic;
  bool flip_horizontal = false;                       // after the resize
  std::optional<ResizeWindow> window = std::nullopt;  // what the box is, to the last bit; without it the box counts
};

// (value / 255 - mean) / stddev per channel.
struct Normalization {
  std::array<float, 3> mean{0.485f, 0.456f, 0.406f};
  std::array<float, 3> stddev{0.229f, 0.224f, 0.225f};
};

// Borrowed 8-bit RGB picture; rows are `stride` bytes apart.
struct RgbView {
  const uint8_t* pixels = nullptr;
  int32_t width = 0, height = 0;
  int64_t stride = 0;
};

RgbView rgb_view(const Array& image);  // U8 [H, W, 3]

// The box must lie within the picture and have an area; InternalError otherwise (callers draw boxes from the known
// size).
Array resize_rgb(const RgbView& source, const ResizeRequest& request);  // U8 [height, width, 3]
// The same, normalised and turned to planes in the last pass; `out` is F32 [3, height, width].
void resize_normalize_rgb(const RgbView& source, const ResizeRequest& request, const Normalization& normalization,
                          std::span<float> out);
// U8 HWC -> normalised F32 CHW.
void normalize_rgb(const RgbView& source, bool flip_horizontal, const Normalization& normalization,
                   std::span<float> out);

namespace reference {
Array resize(const RgbView& source, const ResizeRequest& request);
void normalize(const RgbView& source, bool flip_horizontal, const Normalization& normalization, std::span<float> out);
}  // namespace reference

}  // namespace redline::data
