#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "data/codecs/image.h"
#include "data/codecs/image_writer.h"
#include "data/files/npy.h"
#include "target.h"

namespace redline::fuzz {

namespace {

using namespace redline::data;

constexpr int64_t kMaxPixels = int64_t{1} << 20;

Array gradient_picture(int32_t height, int32_t width) {
  Array image = Array::empty(Dtype::U8, {height, width, 3});
  uint32_t value = 1;
  for (uint8_t& byte : image.as<uint8_t>()) {
    value += 3;
    byte = static_cast<uint8_t>(value >> 2 ^ (value & 8));
  }
  return image;
}

bool decode_picture_all_ways(std::span<const std::byte> bytes) {
  const auto info = probe_image(bytes, "fuzz");
  ImageRequest request;
  request.max_pixels = kMaxPixels;
  const auto whole = decode_image(bytes, "fuzz", request);
  const bool accepted = std::holds_alternative<Array>(whole);
  if (accepted) {
    const auto& image = std::get<Array>(whole);
    require(image.shape()[0] * image.shape()[1] <= kMaxPixels && image.numel() > 0, "a picture stays within its limit");
    require(std::holds_alternative<ImageInfo>(info), "what decodes can be probed");
    require(std::get<ImageInfo>(info).width == image.shape()[1], "the probe tells the truth");
  }
  std::vector<float> row(3 * 24 * 16);
  request.decode = ImageDecode::Fast;
  request.tolerate_extra_bytes = true;
  request.resize = ResizeRequest{.width = 24,
                                 .height = 16,
                                 .box = CropBox{1.5, 2.25, 30, 20},
                                 .filter = ResizeFilter::Bicubic,
                                 .flip_horizontal = true};
  decode_image_normalized(bytes, "fuzz", request, {}, row);
  request.resize->box.reset();
  request.decode = ImageDecode::Exact;
  request.resize->filter = ResizeFilter::Bilinear;
  const auto small = decode_image(bytes, "fuzz", request);
  if (accepted)
    require(std::holds_alternative<Array>(small) && std::get<Array>(small).numel() == 3 * 24 * 16,
            "a resize gives the size asked for");
  return accepted;
}

std::vector<std::string> jpeg_seeds() {
  const Array picture = gradient_picture(33, 47);
  return {encode_jpeg(rgb_view(picture)),    encode_jpeg(rgb_view(picture), 60, false),
          fixture("images/progressive.jpg"), fixture("images/gray.jpg"),
          fixture("images/cmyk.jpg"),        fixture("augment/turned_6.jpg")};
}

std::vector<std::string> png_seeds() {
  const Array picture = gradient_picture(29, 35);
  return {encode_png(rgb_view(picture)), fixture("images/palette.png"), fixture("images/bilevel.png"),
          fixture("images/alpha.png"),   fixture("images/gray.png"),    fixture("augment/turned_3.png"),
          fixture("augment/rgb16.png")};
}

bool read_npy(std::span<const std::byte> bytes) {
  const auto parsed = parse_npy(bytes.subspan(0, std::min<size_t>(bytes.size(), kNpyHeadBytes)), bytes.size());
  const auto* header = std::get_if<NpyHeader>(&parsed);
  if (header == nullptr) return false;
  uint64_t count = dtype_size(header->dtype);
  for (const int64_t size : header->shape) count *= static_cast<uint64_t>(size);  // wraps where the promise is broken
  require(header->data_begin <= bytes.size() && count <= bytes.size() - header->data_begin,
          "an array lies within its file");
  return true;
}

std::vector<std::string> npy_seeds() {
  std::vector<std::string> seeds;
  for (const auto& [dtype, shape] : {std::pair(Dtype::F32, Shape{2, 3, 4, 4}), std::pair(Dtype::I64, Shape{5}),
                                     std::pair(Dtype::U8, Shape{}), std::pair(Dtype::F64, Shape{0, 7})})
    seeds.push_back(npy_head(dtype, shape) + std::string(400, '\x3F'));
  return seeds;
}

// Chunk checksums right again, as far as the chunks still make sense.
void repair_png(std::string& bytes) {
  const auto number = [&](size_t at) {
    const auto* p = reinterpret_cast<const uint8_t*>(bytes.data()) + at;
    return static_cast<uint32_t>(p[0]) << 24 | static_cast<uint32_t>(p[1]) << 16 | static_cast<uint32_t>(p[2]) << 8 |
           p[3];
  };
  size_t at = 8;
  while (at + 12 <= bytes.size()) {
    const uint32_t length = number(at);
    if (length > bytes.size() - at - 12) return;
    const auto crc =
        static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()) + at + 4, length + 4));
    for (size_t i = 0; i < 4; ++i) bytes[at + 8 + length + i] = static_cast<char>(crc >> (24 - 8 * i));
    at += 12 + length;
  }
}

}  // namespace

std::vector<Target> image_targets() {
  return {{"jpeg", decode_picture_all_ways, jpeg_seeds, {}},
          {"png", decode_picture_all_ways, png_seeds, repair_png},
          {"npy", read_npy, npy_seeds, {}}};
}

}  // namespace redline::fuzz
