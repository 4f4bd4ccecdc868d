// Decodes JPEG and PNG held in memory to 8-bit RGB, cut and resized in the same call when asked. `exact` decodes the
// whole picture and resizes it as Pillow does; `fast` lets the JPEG decoder shrink while decoding and use its cheaper
// transforms (changes numerics). Header dimensions are checked before anything is allocated. A picture that its camera
// noted to be turned (EXIF orientation) is made upright first, so that boxes and sizes are those of what a person sees;
// `upright: false` leaves the stored pixels, as Pillow's open() does. Threads: any; the TurboJPEG handle and scratch
// memory are per thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "data/array.h"
#include "data/codecs/image_resize.h"
#include "data/source.h"

namespace redline::data {

enum class ImageFormat : uint8_t { Jpeg, Png };
enum class ImageDecode : uint8_t { Exact, Fast };

struct ImageInfo {
  ImageFormat format = ImageFormat::Jpeg;
  int32_t width = 0, height = 0;
};

struct ImageRequest {
  ImageDecode decode = ImageDecode::Exact;
  std::optional<ResizeRequest> resize = std::nullopt;  // box in pixels of the (upright) picture
  bool upright = true;                                 // EXIF orientation is followed
  bool grey = false;                                   // all three channels are the grey (Pillow's convert("L"))
  int64_t max_pixels = int64_t{1} << 28;               // of the stored picture; larger headers are refused
  // Some cameras leave stray bytes between JPEG markers; a flipped bit looks the same, so it counts as damage unless
  // said otherwise.
  bool tolerate_extra_bytes = false;
};

using ImageResult = std::variant<Array, BadSample>;  // U8 [H, W, 3]
using ImageInfoResult = std::variant<ImageInfo, BadSample>;
using ImageStatus = std::optional<BadSample>;

ImageInfoResult probe_image(std::span<const std::byte> bytes, const std::string& name, bool upright = true);
ImageResult decode_image(std::span<const std::byte> bytes, const std::string& name, const ImageRequest& request);

// Decode, crop, resize, flip and normalise in one go into a row of a batch: `out` is F32 [3, height, width] of
// request.resize.
ImageStatus decode_image_normalized(std::span<const std::byte> bytes, const std::string& name,
                                    const ImageRequest& request, const Normalization& normalization,
                                    std::span<float> out);

}  // namespace redline::data
