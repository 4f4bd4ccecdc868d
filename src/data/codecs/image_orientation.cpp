// EXIF orientation: where cameras note how they were held. Read from a JPEG's APP1 segment or a PNG's eXIf chunk, both
// of which hold a small TIFF file; anything that does not add up counts as upright.
#include <cstring>

#include "data/codecs/image_parts.h"

namespace redline::data::codecs {

namespace {

constexpr uint16_t kOrientationTag = 0x0112, kShortType = 3;

// Numbers of a TIFF file in its byte order; reads past its end give 0.
class Tiff {
 public:
  explicit Tiff(std::span<const std::byte> bytes) : bytes_(bytes) {
    little_ = bytes.size() >= 2 && bytes[0] == std::byte{'I'};
  }
  uint32_t number(size_t at, size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i)
      value = value << 8 | static_cast<uint32_t>(bytes_[at + (little_ ? size - 1 - i : i)]);
    return value;
  }
  int orientation() const {
    if (number(2, 2) != 42) return 1;
    const size_t directory = number(4, 4), entries = number(directory, 2);
    for (size_t e = 0; e < entries; ++e) {
      const size_t at = directory + 2 + 12 * e;
      if (at + 12 > bytes_.size()) break;
      if (number(at, 2) != kOrientationTag) continue;
      const uint32_t value = number(at + 8, 2);
      return number(at + 2, 2) == kShortType && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
    return 1;
  }

 private:
  std::span<const std::byte> bytes_;
  bool little_ = true;
};

size_t big_endian(std::span<const std::byte> bytes, size_t at, size_t size) {
  size_t value = 0;
  for (size_t i = 0; i < size; ++i) value = value << 8 | static_cast<size_t>(bytes[at + i]);
  return value;
}

int of_jpeg(std::span<const std::byte> bytes) {
  size_t at = 2;
  while (at + 4 <= bytes.size() && bytes[at] == std::byte{0xFF}) {
    const auto marker = static_cast<uint8_t>(bytes[at + 1]);
    const size_t length = big_endian(bytes, at + 2, 2);
    if (marker == 0xDA || length < 2 || length > bytes.size() - at - 2) return 1;
    if (marker == 0xE1 && length >= 8 && std::memcmp(bytes.data() + at + 4, "Exif\0\0", 6) == 0)
      return Tiff(bytes.subspan(at + 10, length - 8)).orientation();
    at += 2 + length;
  }
  return 1;
}

int of_png(std::span<const std::byte> bytes) {
  size_t at = 8;
  while (at + 12 <= bytes.size()) {
    const size_t length = big_endian(bytes, at, 4);
    if (length > bytes.size() - at - 12) return 1;
    if (std::memcmp(bytes.data() + at + 4, "eXIf", 4) == 0) return Tiff(bytes.subspan(at + 8, length)).orientation();
    at += 12 + length;
  }
  return 1;
}

}  // namespace

int orientation_of(std::span<const std::byte> bytes) {
  if (looks_like_jpeg(bytes)) return of_jpeg(bytes);
  if (looks_like_png(bytes)) return of_png(bytes);
  return 1;
}

DecodedImage turn_upright(const DecodedImage& image, int orientation, std::vector<uint8_t>& upright) {
  // 2 mirrored, 3 half a turn, 4 upside down, 5 to 8 the same of the picture with its axes exchanged.
  const bool exchanged = orientation >= 5;
  const bool flip_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool flip_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const RgbView& from = image.view;
  const int32_t width = exchanged ? from.height : from.width, height = exchanged ? from.width : from.height;
  upright.resize(static_cast<size_t>(width) * static_cast<size_t>(height) * 3);
  uint8_t* to = upright.data();
  for (int32_t y = 0; y < height; ++y) {
    for (int32_t x = 0; x < width; ++x, to += 3) {
      int32_t stored_x = exchanged ? y : x, stored_y = exchanged ? x : y;
      if (flip_x) stored_x = from.width - 1 - stored_x;
      if (flip_y) stored_y = from.height - 1 - stored_y;
      std::memcpy(to, from.pixels + stored_y * from.stride + int64_t{stored_x} * 3, 3);
    }
  }
  DecodedImage turned;
  turned.view = {upright.data(), width, height, int64_t{width} * 3};
  turned.stored_width = width;
  turned.stored_height = height;
  return turned;
}

}  // namespace redline::data::codecs
