#include "data/codecs/image_writer.h"

#include <png.h>
#include <turbojpeg.h>

#include <csetjmp>
#include <memory>

#include "core/check.h"

namespace redline::data {

namespace {

struct CompressorDeleter {
  void operator()(void* handle) const { tjDestroy(handle); }
};

void append_png(png_structp png, png_bytep bytes, size_t count) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<const char*>(bytes), count);
}
void flush_png(png_structp) {}

// No objects with destructors: libpng may jump out.
bool write_png(png_structp png, png_infop info, const RgbView& image, int compression_level, std::string* out) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_write_fn(png, out, append_png, flush_png);
  png_set_compression_level(png, compression_level);
  png_set_filter(png, PNG_FILTER_TYPE_BASE, PNG_FILTER_SUB);
  png_set_IHDR(png, info, static_cast<png_uint_32>(image.width), static_cast<png_uint_32>(image.height), 8,
               PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (int32_t y = 0; y < image.height; ++y) png_write_row(png, image.pixels + y * image.stride);
  png_write_end(png, nullptr);
  return true;
}

}  // namespace

std::string encode_jpeg(const RgbView& image, int quality, bool subsample_chroma) {
  const std::unique_ptr<void, CompressorDeleter> handle(tjInitCompress());
  REDLINE_CHECK(handle != nullptr, "TurboJPEG gives a compressor");
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // TurboJPEG's type
  const int status =
      tjCompress2(handle.get(), image.pixels, image.width, static_cast<int>(image.stride), image.height, TJPF_RGB,
                  &bytes, &size, subsample_chroma ? TJSAMP_420 : TJSAMP_444, quality, TJFLAG_ACCURATEDCT);
  std::string out;
  if (status == 0) out.assign(reinterpret_cast<const char*>(bytes), size);
  tjFree(bytes);
  REDLINE_CHECK(status == 0, "compressing a picture in memory does not fail");
  return out;
}

std::string encode_png(const RgbView& image, int compression_level) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  REDLINE_CHECK(png != nullptr, "libpng gives a writer");
  png_infop info = png_create_info_struct(png);
  std::string out;
  const bool written = info != nullptr && write_png(png, info, image, compression_level, &out);
  png_destroy_write_struct(&png, &info);
  REDLINE_CHECK(written, "writing a picture to memory does not fail");
  return out;
}

}  // namespace redline::data
