// What the JPEG and PNG decoders share with image.cpp. Not for use outside codecs/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "data/codecs/image.h"
#include "data/codecs/refusal.h"

namespace redline::data::codecs {

// A decoded picture in memory that the decoding thread keeps: valid until its next decode.
struct DecodedImage {
  RgbView view;
  int32_t stored_width = 0, stored_height = 0;  // larger than the view when the decoder shrank the picture
};

// EXIF's orientation, 1 to 8; 1 when there is none or none that makes sense.
int orientation_of(std::span<const std::byte> bytes);
// Turned upright, into `upright`; the view is of it.
DecodedImage turn_upright(const DecodedImage& image, int orientation, std::vector<uint8_t>& upright);

bool looks_like_jpeg(std::span<const std::byte> bytes);
bool looks_like_png(std::span<const std::byte> bytes);
std::variant<ImageInfo, Refusal> probe_jpeg(std::span<const std::byte> bytes);
std::variant<ImageInfo, Refusal> probe_png(std::span<const std::byte> bytes);
std::variant<DecodedImage, Refusal> decode_jpeg(std::span<const std::byte> bytes, const ImageRequest& request,
                                                std::vector<uint8_t>& pixels);
std::variant<DecodedImage, Refusal> decode_png(std::span<const std::byte> bytes, const ImageRequest& request,
                                               std::vector<uint8_t>& pixels);

// "its header says 70000 x 70000 pixels ..." when the picture is empty or over the limit.
std::optional<Refusal> check_dimensions(int64_t width, int64_t height, int64_t max_pixels);
// A picture that takes `needed` bytes while it is decoded, from a file of `stored` bytes that must hold at least
// `least`: refused when it does not, or when a sample may not take so much.
std::optional<Refusal> check_bytes(const ImageInfo& info, uint64_t stored, uint64_t least, uint64_t needed);

}  // namespace redline::data::codecs
