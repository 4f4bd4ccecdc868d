#include "draw/canvas.h"

#include <gtest/gtest.h>
#include <png.h>

#include "draw/letters/glyphs.h"

namespace redline::draw {
namespace {

void draw_some(Canvas& canvas) {
  canvas.rectangle({0, 0}, 20, 10, {255, 255, 255});
  canvas.rectangle({1, 1}, 4, 3, {37, 99, 235});
  canvas.path({{0, 5}, {20, 5}}, 1, {220, 38, 38, 0.5}, true);
  canvas.dot({15, 5}, 2, {0, 0, 0});
  canvas.text({2, 9.5}, "a<'b'>", {10, {31, 41, 55}, Anchor::Middle, true});
}

TEST(Canvas, SvgIsWrittenByteForByte) {
  const auto canvas = make_svg(20, 10, "one & two");
  draw_some(*canvas);
  EXPECT_EQ(canvas->finish(),
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 20 10\" width=\"20\" height=\"10\" role=\"img\" "
            "font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif\">\n"
            "<title>one &amp; two</title>\n"
            "<rect x=\"0.00\" y=\"0.00\" width=\"20.00\" height=\"10.00\" fill=\"#ffffff\"/>\n"
            "<rect x=\"1.00\" y=\"1.00\" width=\"4.00\" height=\"3.00\" fill=\"#2563eb\"/>\n"
            "<polyline points=\"0.00,5.00 20.00,5.00\" fill=\"none\" stroke=\"#dc2626\" stroke-opacity=\"0.5\" "
            "stroke-width=\"1\" stroke-linejoin=\"round\" stroke-linecap=\"round\" stroke-dasharray=\"5 4\"/>\n"
            "<circle cx=\"15.00\" cy=\"5.00\" r=\"2.00\" fill=\"#000000\"/>\n"
            "<text x=\"2.00\" y=\"9.50\" font-size=\"10\" text-anchor=\"middle\" fill=\"#1f2937\" "
            "font-weight=\"600\">a&lt;&#39;b&#39;&gt;</text>\n"
            "</svg>\n");
}

TEST(Canvas, PngDecodesToTheSamePixels) {
  const auto canvas = make_png(20, 10, 2);
  draw_some(*canvas);
  const std::string bytes = canvas->finish();
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  ASSERT_NE(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()), 0);
  image.format = PNG_FORMAT_RGB;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  ASSERT_NE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr), 0);
  ASSERT_EQ(image.width, 40u);
  ASSERT_EQ(image.height, 20u);
  const auto pixel = [&](size_t x, size_t y) {
    const uint8_t* p = pixels.data() + (y * 40 + x) * 3;
    return std::vector<int>{p[0], p[1], p[2]};
  };
  EXPECT_EQ(pixel(39, 19), (std::vector<int>{255, 255, 255}));
  EXPECT_EQ(pixel(2, 2), (std::vector<int>{37, 99, 235})) << "the rectangle's corner";
  EXPECT_EQ(pixel(9, 7), (std::vector<int>{37, 99, 235})) << "and its last pixel";
  EXPECT_EQ(pixel(10, 2), (std::vector<int>{255, 255, 255})) << "and what lies outside";
  EXPECT_EQ(pixel(30, 10), (std::vector<int>{0, 0, 0})) << "the dot's centre";
  EXPECT_EQ(pixel(20, 9), (std::vector<int>{238, 147, 147})) << "half a red line over white";
  EXPECT_EQ(pixel(14, 9), (std::vector<int>{255, 255, 255})) << "between two dashes";
}

TEST(Canvas, LettersHavePicturesAndUnknownOnesAreBlank) {
  for (char c : std::string("abcxyzABCXYZ0123456789.,:;()/%+-=<>_")) EXPECT_NE(glyph_rows(c), 0u) << c;
  EXPECT_EQ(glyph_rows(' '), 0u);
  EXPECT_EQ(glyph_rows('\x01'), 0u);
  EXPECT_EQ(glyph_rows('-'), uint64_t{0x1f} << 15);
}

}  // namespace
}  // namespace redline::draw
