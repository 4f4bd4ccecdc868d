// JPEG through TurboJPEG. `exact` uses the accurate inverse DCT and smooth chroma upsampling, as Pillow does. `fast`
// uses the cheaper ones and, where the result is smaller, lets the decoder shrink by a factor it has vector code for:
// other factors save pixels but cost more time than they save. A damaged stream decodes with a warning; that is a bad
// sample, not a picture.
#include <turbojpeg.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "data/codecs/image_parts.h"

namespace redline::data::codecs {

namespace {

struct DecompressorDeleter {
  void operator()(void* handle) const { tjDestroy(handle); }
};

// The thread's handle. After an error TurboJPEG may leave it in the middle of a file, so then it is made anew.
class JpegHandle {
 public:
  JpegHandle() {
    if (!kept()) kept().reset(tjInitDecompress());
  }
  JpegHandle(const JpegHandle&) = delete;
  JpegHandle& operator=(const JpegHandle&) = delete;
  ~JpegHandle() {
    if (!good_) kept().reset();
  }
  tjhandle get() const { return kept().get(); }
  void done() { good_ = true; }

 private:
  static std::unique_ptr<void, DecompressorDeleter>& kept() {
    thread_local std::unique_ptr<void, DecompressorDeleter> handle;
    return handle;
  }
  bool good_ = false;
};

struct JpegHeader {
  int width = 0, height = 0, subsampling = 0, colorspace = 0;
};

std::string jpeg_error(tjhandle handle) {
  const std::string text = tjGetErrorStr2(handle);
  return text.empty() ? "unknown error" : text;
}

const unsigned char* jpeg_bytes(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

std::variant<JpegHeader, Refusal> read_header(tjhandle handle, std::span<const std::byte> bytes) {
  if (handle == nullptr) return Refusal{"the JPEG decoder could not be started"};
  JpegHeader header;
  if (tjDecompressHeader3(handle, jpeg_bytes(bytes), bytes.size(), &header.width, &header.height, &header.subsampling,
                          &header.colorspace) != 0 &&
      tjGetErrorCode(handle) != TJERR_WARNING) {
    return Refusal{"its JPEG header is damaged: " + jpeg_error(handle)};
  }
  if (header.width < 1 || header.height < 1) return Refusal{"its JPEG header is cut off or damaged"};
  return header;
}

// The strongest shrink that still leaves at least as many pixels as the result has.
tjscalingfactor choose_scale(const JpegHeader& header, const ImageRequest& request) {
  tjscalingfactor best{1, 1};
  if (request.decode != ImageDecode::Fast || !request.resize) return best;
  const ResizeRequest& resize = *request.resize;
  const CropBox box =
      resize.box.value_or(CropBox{0, 0, static_cast<double>(header.width), static_cast<double>(header.height)});
  for (const int denominator : {2, 4, 8}) {
    if ((box.x1 - box.x0) / denominator >= resize.width && (box.y1 - box.y0) / denominator >= resize.height)
      best = {1, denominator};
  }
  return best;
}

// What the markers before the first scan tell. Where no frame was seen, the most that one may take is assumed.
struct JpegMarkers {
  bool adobe = false;    // Adobe's writers store CMYK inverted and say so with an APP14 marker
  bool buffered = true;  // progressive or in several scans: the decoder holds every coefficient of the picture
  bool huffman = false;  // one scan, in which a block takes at least one bit
  int components = 4;
};

// Finds markers exactly as libjpeg does, which passes over bytes between them and knows some without a length: a file
// in which we and the decoder saw different frames would be charged for less than it takes.
JpegMarkers read_markers(std::span<const std::byte> bytes) {
  JpegMarkers markers;
  const auto* p = jpeg_bytes(bytes);
  size_t at = 2;
  while (at + 4 <= bytes.size()) {
    const unsigned char marker = p[at + 1];
    if (p[at] != 0xFF || marker == 0xFF || marker == 0x00) {  // no marker here, or a fill byte
      ++at;
      continue;
    }
    if (marker == 0xD9) break;
    if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD7)) {  // without a length
      at += 2;
      continue;
    }
    const size_t length = static_cast<size_t>(p[at + 2]) << 8 | p[at + 3];
    if (marker == 0xEE && at + 9 <= bytes.size() && std::memcmp(p + at + 4, "Adobe", 5) == 0) markers.adobe = true;
    const bool frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    if (frame && at + 10 <= bytes.size()) {
      markers.components = std::max<int>(1, p[at + 9]);
      markers.huffman = marker <= 0xC1;
      markers.buffered = marker != 0xC0 && marker != 0xC1;
    }
    if (marker == 0xDA) {
      if (at + 5 <= bytes.size() && p[at + 4] < markers.components) markers.buffered = true;
      break;
    }
    if (length < 2) break;
    at += 2 + length;
  }
  return markers;
}

// In place; Pillow's CMYK to RGB.
void cmyk_to_rgb(uint8_t* pixels, int64_t count, bool inverted) {
  const auto scale = [](int a, int b) {
    const int t = a * b + 128;
    return ((t >> 8) + t) >> 8;
  };
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* cmyk = pixels + 4 * i;
    int ink[4];
    for (int c = 0; c < 4; ++c) ink[c] = inverted ? 255 - cmyk[c] : cmyk[c];
    const int light = 255 - ink[3];
    for (int c = 0; c < 3; ++c)
      pixels[3 * i + c] = static_cast<uint8_t>(std::clamp(light - scale(ink[c], light), 0, 255));
  }
}

}  // namespace

bool looks_like_jpeg(std::span<const std::byte> bytes) {
  return bytes.size() >= 3 && bytes[0] == std::byte{0xFF} && bytes[1] == std::byte{0xD8} && bytes[2] == std::byte{0xFF};
}

std::variant<ImageInfo, Refusal> probe_jpeg(std::span<const std::byte> bytes) {
  JpegHandle handle;
  auto result = read_header(handle.get(), bytes);
  if (auto* refusal = std::get_if<Refusal>(&result)) return std::move(*refusal);
  const auto& header = std::get<JpegHeader>(result);
  handle.done();
  return ImageInfo{ImageFormat::Jpeg, header.width, header.height};
}

std::variant<DecodedImage, Refusal> decode_jpeg(std::span<const std::byte> bytes, const ImageRequest& request,
                                                std::vector<uint8_t>& pixels) {
  JpegHandle owner;
  const tjhandle handle = owner.get();
  auto result = read_header(handle, bytes);
  if (auto* refusal = std::get_if<Refusal>(&result)) return std::move(*refusal);
  const auto& header = std::get<JpegHeader>(result);
  if (auto refusal = check_dimensions(header.width, header.height, request.max_pixels)) return *refusal;

  const JpegMarkers markers = read_markers(bytes);
  const bool cmyk = header.colorspace == TJCS_CMYK || header.colorspace == TJCS_YCCK;
  const tjscalingfactor scale = choose_scale(header, request);
  const int width = TJSCALED(header.width, scale), height = TJSCALED(header.height, scale);
  const size_t pixel_bytes = static_cast<size_t>(width) * static_cast<size_t>(height) * (cmyk ? 4 : 3);
  const uint64_t area = static_cast<uint64_t>(header.width) * static_cast<uint64_t>(header.height);
  // Two bytes per coefficient; a block of 8 x 8 takes a bit, and components may be a sixteenth of the picture.
  const uint64_t buffered = markers.buffered ? area * 2 * static_cast<uint64_t>(markers.components) : 0;
  const uint64_t least = markers.huffman ? area / 64 / 8 / 16 : 0;
  if (auto refusal =
          check_bytes({ImageFormat::Jpeg, header.width, header.height}, bytes.size(), least, pixel_bytes + buffered))
    return *refusal;
  pixels.resize(pixel_bytes);
  int flags = TJFLAG_LIMITSCANS;
  flags |= request.decode == ImageDecode::Fast ? TJFLAG_FASTDCT | TJFLAG_FASTUPSAMPLE : TJFLAG_ACCURATEDCT;
  if (tjDecompress2(handle, jpeg_bytes(bytes), bytes.size(), pixels.data(), width, 0, height,
                    cmyk ? TJPF_CMYK : TJPF_RGB, flags) != 0) {
    const std::string text = jpeg_error(handle);
    const bool harmless = request.tolerate_extra_bytes && tjGetErrorCode(handle) == TJERR_WARNING &&
                          text.find("extraneous bytes") != std::string::npos;
    if (!harmless) {
      if (text.find("Premature end") != std::string::npos) return Refusal{"it is truncated: " + text};
      return Refusal{"its JPEG data is damaged: " + text};
    }
  }
  owner.done();
  if (cmyk) cmyk_to_rgb(pixels.data(), int64_t{width} * height, markers.adobe);
  DecodedImage image;
  image.view = {pixels.data(), width, height, int64_t{width} * 3};
  image.stored_width = header.width;
  image.stored_height = header.height;
  return image;
}

}  // namespace redline::data::codecs
