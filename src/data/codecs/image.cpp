#include "data/codecs/image.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/check.h"
#include "data/codecs/image_colour.h"
#include "data/codecs/image_parts.h"
#include "data/workers/item_memory.h"
#include "measure/stage_clock.h"

namespace redline::data {

namespace {

using codecs::DecodedImage;
using codecs::Refusal;

constexpr size_t kMaxKeptPixels = size_t{64} << 20;  // bytes a thread keeps for the next picture

// The decoding thread's picture; given back when a giant has passed.
class PixelBuffer {
 public:
  ~PixelBuffer() {
    if (pixels().capacity() > kMaxKeptPixels) std::vector<uint8_t>().swap(pixels());
  }
  std::vector<uint8_t>& pixels() {
    thread_local std::vector<uint8_t> kept;
    return kept;
  }
  std::vector<uint8_t> turned;  // a picture on its side is rare: nothing is kept for it
};

Refusal refuse_unknown_image(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {"it has 0 bytes"};
  const auto starts = [&](const char* magic, size_t at = 0) {
    return bytes.size() >= at + std::strlen(magic) && std::memcmp(bytes.data() + at, magic, std::strlen(magic)) == 0;
  };
  std::string what = "is in an unknown format";
  if (starts("GIF8")) what = "is a GIF file";
  if (starts("BM")) what = "is a BMP file";
  if (starts("WEBP", 8)) what = "is a WebP file";
  if (starts("II*") || starts("MM")) what = "is a TIFF file";
  if (starts("ftyp", 4)) what = "is a HEIF or AVIF file";
  return {"it " + what + "; allowed formats are JPEG and PNG"};
}

std::variant<DecodedImage, Refusal> decode_stored(std::span<const std::byte> bytes, const ImageRequest& request,
                                                  std::vector<uint8_t>& pixels) {
  if (codecs::looks_like_jpeg(bytes)) return codecs::decode_jpeg(bytes, request, pixels);
  if (codecs::looks_like_png(bytes)) return codecs::decode_png(bytes, request, pixels);
  return refuse_unknown_image(bytes);
}

// Upright and grey where that is asked for.
std::variant<DecodedImage, Refusal> decode_any(std::span<const std::byte> bytes, const ImageRequest& request,
                                               PixelBuffer& buffer) {
  const measure::InnerStage scope(measure::Stage::Decode);
  const int orientation = request.upright ? codecs::orientation_of(bytes) : 1;
  ImageRequest stored = request;
  if (orientation != 1) stored.resize.reset();  // the box is of the upright picture: the decoder must not shrink by it
  auto result = decode_stored(bytes, stored, buffer.pixels());
  auto* image = std::get_if<DecodedImage>(&result);
  if (image == nullptr) return result;
  if (request.grey) make_grey(buffer.pixels().data(), int64_t{image->view.width} * image->view.height);
  if (orientation == 1) return result;
  if (!charge_memory(buffer.pixels().size())) return Refusal{too_large_text()};
  return codecs::turn_upright(*image, orientation, buffer.turned);
}

// The request in pixels of what the decoder gave. Boxes are drawn from the probed size, but a file may change in
// between: then the box no longer fits.
std::variant<ResizeRequest, Refusal> fit_request(const ResizeRequest& wanted, const DecodedImage& image) {
  ResizeRequest request = wanted;
  if (!request.box) return request;
  CropBox& box = *request.box;
  const double width = image.stored_width, height = image.stored_height;
  if (!(box.x0 >= 0 && box.y0 >= 0 && box.x1 <= width && box.y1 <= height && box.x1 > box.x0 && box.y1 > box.y0)) {
    return Refusal{"the part to cut out does not lie within its " + std::to_string(image.stored_width) + " x " +
                   std::to_string(image.stored_height) + " pixels"};
  }
  const double scale_x = image.view.width / width, scale_y = image.view.height / height;
  box = {box.x0 * scale_x, box.y0 * scale_y, std::min(box.x1 * scale_x, static_cast<double>(image.view.width)),
         std::min(box.y1 * scale_y, static_cast<double>(image.view.height))};
  return request;
}

}  // namespace

namespace codecs {

std::optional<Refusal> check_dimensions(int64_t width, int64_t height, int64_t max_pixels) {
  if (width >= 1 && height >= 1 && width <= max_pixels / height) return std::nullopt;
  return Refusal{"its header says " + std::to_string(width) + " x " + std::to_string(height) + " pixels; at most " +
                 std::to_string(max_pixels) + " are allowed"};
}

std::optional<Refusal> check_bytes(const ImageInfo& info, uint64_t stored, uint64_t least, uint64_t needed) {
  if (stored < least) {
    return Refusal{"it is truncated: the header promises " + std::to_string(info.width) + " x " +
                   std::to_string(info.height) + " pixels, " + std::to_string(stored) + " bytes cannot hold them"};
  }
  if (charge_memory(needed)) return std::nullopt;
  return Refusal{"its " + std::to_string(info.width) + " x " + std::to_string(info.height) +
                 " pixels are too many: " + too_large_text()};
}

}  // namespace codecs

ImageInfoResult probe_image(std::span<const std::byte> bytes, const std::string& name, bool upright) {
  std::variant<ImageInfo, Refusal> result = Refusal{};
  if (codecs::looks_like_jpeg(bytes))
    result = codecs::probe_jpeg(bytes);
  else if (codecs::looks_like_png(bytes))
    result = codecs::probe_png(bytes);
  else
    result = refuse_unknown_image(bytes);
  if (auto* refusal = std::get_if<Refusal>(&result)) return BadSample{name, std::move(refusal->reason)};
  ImageInfo info = std::get<ImageInfo>(result);
  if (upright && codecs::orientation_of(bytes) >= 5) std::swap(info.width, info.height);
  return info;
}

ImageResult decode_image(std::span<const std::byte> bytes, const std::string& name, const ImageRequest& request) {
  PixelBuffer buffer;
  auto result = decode_any(bytes, request, buffer);
  if (auto* refusal = std::get_if<Refusal>(&result)) return BadSample{name, std::move(refusal->reason)};
  const DecodedImage& image = std::get<DecodedImage>(result);
  if (!request.resize) {
    if (!charge_memory(static_cast<uint64_t>(image.view.height) * static_cast<uint64_t>(image.view.width) * 3))
      return BadSample{name, too_large_text()};
    Array whole = Array::empty(Dtype::U8, {image.view.height, image.view.width, 3});
    std::memcpy(whole.data(), image.view.pixels, whole.num_bytes());
    return whole;
  }
  auto fitted = fit_request(*request.resize, image);
  if (auto* refusal = std::get_if<Refusal>(&fitted)) return BadSample{name, std::move(refusal->reason)};
  return resize_rgb(image.view, std::get<ResizeRequest>(fitted));
}

ImageStatus decode_image_normalized(std::span<const std::byte> bytes, const std::string& name,
                                    const ImageRequest& request, const Normalization& normalization,
                                    std::span<float> out) {
  REDLINE_CHECK(request.resize.has_value(), "rows of a batch have one size, so the request says which");
  PixelBuffer buffer;
  auto result = decode_any(bytes, request, buffer);
  if (auto* refusal = std::get_if<Refusal>(&result)) return BadSample{name, std::move(refusal->reason)};
  const DecodedImage& image = std::get<DecodedImage>(result);
  auto fitted = fit_request(*request.resize, image);
  if (auto* refusal = std::get_if<Refusal>(&fitted)) return BadSample{name, std::move(refusal->reason)};
  resize_normalize_rgb(image.view, std::get<ResizeRequest>(fitted), normalization, out);
  return std::nullopt;
}

}  // namespace redline::data
