// PNG through libpng's low-level interface (the simplified one applies gamma, which Pillow does not). Every colour type
// comes out as 8-bit RGB: palettes and greys expanded, alpha dropped, 16 bits cut to the upper 8. libpng reports errors
// by longjmp: the functions that may be jumped out of hold no objects with destructors.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>

#include "data/codecs/image_parts.h"

namespace redline::data::codecs {

namespace {

constexpr png_uint_32 kMaxSide = 1u << 20;
constexpr png_alloc_size_t kMaxChunkBytes = 16u << 20;
constexpr int kMaxCachedChunks = 64;

// One decode; also where libpng's message is kept across the jump.
struct PngReader {
  const std::byte* bytes = nullptr;
  size_t size = 0, position = 0;
  png_structp png = nullptr;
  png_infop info = nullptr;
  char message[160] = {};

  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
};

void on_png_error(png_structp png, png_const_charp text) {
  auto* reader = static_cast<PngReader*>(png_get_error_ptr(png));
  std::strncpy(reader->message, text, sizeof(reader->message) - 1);
  png_longjmp(png, 1);
}

void on_png_warning(png_structp, png_const_charp) {}

void on_png_read(png_structp png, png_bytep out, size_t count) {
  auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
  if (count > reader->size - reader->position) png_error(png, "the file ends too early");
  std::memcpy(out, reader->bytes + reader->position, count);
  reader->position += count;
}

bool open_png(PngReader& reader, std::span<const std::byte> bytes) {
  reader.bytes = bytes.data();
  reader.size = bytes.size();
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, on_png_error, on_png_warning);
  if (reader.png == nullptr) return false;
  reader.info = png_create_info_struct(reader.png);
  return reader.info != nullptr;
}

bool read_png_header(PngReader& reader) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_set_user_limits(reader.png, kMaxSide, kMaxSide);
  png_set_chunk_malloc_max(reader.png, kMaxChunkBytes);
  png_set_chunk_cache_max(reader.png, kMaxCachedChunks);
  // Texts, profiles and times are passed over: a chunk of 16 KB may unpack to 16 MiB, and nobody asks for them.
  png_set_keep_unknown_chunks(reader.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_read_fn(reader.png, &reader, on_png_read);
  png_read_info(reader.png, reader.info);
  return true;
}

// Fills `rows` (pointers into the picture). The number of passes over an interlaced picture is libpng's matter.
bool read_png_pixels(PngReader& reader, png_bytepp rows, size_t row_bytes) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_read_update_info(reader.png, reader.info);
  if (png_get_rowbytes(reader.png, reader.info) != row_bytes) png_error(reader.png, "its colour type is not supported");
  png_read_image(reader.png, rows);
  png_read_end(reader.png, nullptr);
  return true;
}

bool set_png_transforms(PngReader& reader) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  const png_byte type = png_get_color_type(reader.png, reader.info);
  png_set_strip_16(reader.png);
  png_set_strip_alpha(reader.png);
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(reader.png);
  if ((type & PNG_COLOR_MASK_COLOR) == 0) {
    png_set_expand_gray_1_2_4_to_8(reader.png);
    png_set_gray_to_rgb(reader.png);
  }
  png_set_interlace_handling(reader.png);
  return true;
}

Refusal refuse_png(const PngReader& reader) {
  const std::string text = reader.message[0] != '\0' ? reader.message : "unknown error";
  if (text.find("ends too early") != std::string::npos) return {"it is truncated: " + text};
  return {"its PNG data is damaged: " + text};
}

}  // namespace

bool looks_like_png(std::span<const std::byte> bytes) {
  static constexpr unsigned char kMagic[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  return bytes.size() >= sizeof(kMagic) && std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) == 0;
}

std::variant<ImageInfo, Refusal> probe_png(std::span<const std::byte> bytes) {
  // IHDR is always the first chunk: length, "IHDR", width, height, all big-endian.
  if (bytes.size() < 24 || std::memcmp(bytes.data() + 12, "IHDR", 4) != 0)
    return Refusal{"it is truncated inside its header"};
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  const auto number = [p](size_t at) {
    return static_cast<int64_t>(p[at]) << 24 | static_cast<int64_t>(p[at + 1]) << 16 |
           static_cast<int64_t>(p[at + 2]) << 8 | p[at + 3];
  };
  const int64_t width = number(16), height = number(20);
  if (width < 1 || height < 1 || width > kMaxSide || height > kMaxSide) {
    return Refusal{"its header says " + std::to_string(width) + " x " + std::to_string(height) + " pixels"};
  }
  return ImageInfo{ImageFormat::Png, static_cast<int32_t>(width), static_cast<int32_t>(height)};
}

namespace {

// Deflate makes at most 1,032 bytes of one. IHDR says bits and channels; an unknown kind counts as the smallest.
uint64_t least_png_bytes(std::span<const std::byte> bytes, const ImageInfo& info) {
  constexpr uint64_t kMostPerByte = 1032;
  if (bytes.size() < 26) return 0;
  const auto depth = static_cast<uint64_t>(bytes[24]);
  const auto type = static_cast<int>(bytes[25]);
  const uint64_t channels = type == PNG_COLOR_TYPE_RGB          ? 3
                            : type == PNG_COLOR_TYPE_RGB_ALPHA  ? 4
                            : type == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                                                                : 1;
  const uint64_t row = static_cast<uint64_t>(info.width) * channels * std::clamp<uint64_t>(depth, 1, 16) / 8;
  return static_cast<uint64_t>(info.height) * row / kMostPerByte;
}

}  // namespace

std::variant<DecodedImage, Refusal> decode_png(std::span<const std::byte> bytes, const ImageRequest& request,
                                               std::vector<uint8_t>& pixels) {
  auto probed = probe_png(bytes);
  if (auto* refusal = std::get_if<Refusal>(&probed)) return std::move(*refusal);
  const ImageInfo info = std::get<ImageInfo>(probed);
  if (auto refusal = check_dimensions(info.width, info.height, request.max_pixels)) return *refusal;
  const size_t row_bytes = static_cast<size_t>(info.width) * 3;
  if (auto refusal = check_bytes(info, bytes.size(), least_png_bytes(bytes, info),
                                 (row_bytes + sizeof(png_bytep)) * static_cast<size_t>(info.height)))
    return *refusal;
  PngReader reader;
  if (!open_png(reader, bytes)) return Refusal{"the PNG decoder could not be started"};
  if (!read_png_header(reader) || !set_png_transforms(reader)) return refuse_png(reader);

  pixels.resize(row_bytes * static_cast<size_t>(info.height));
  std::vector<png_bytep> rows(static_cast<size_t>(info.height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = pixels.data() + y * row_bytes;
  if (!read_png_pixels(reader, rows.data(), row_bytes)) return refuse_png(reader);
  DecodedImage image;
  image.view = {pixels.data(), info.width, info.height, static_cast<int64_t>(row_bytes)};
  image.stored_width = info.width;
  image.stored_height = info.height;
  return image;
}

}  // namespace redline::data::codecs
