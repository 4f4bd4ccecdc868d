#include "data/codecs/image.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"
#include "data/codecs/image_writer.h"
#include "data/testing/image_fixtures.h"

namespace redline::data {
namespace {

std::string image_refusal(const std::string& file, const ImageRequest& request = {}) {
  auto result = decode_image(image_bytes(file), "x.jpg", request);
  if (auto* bad = std::get_if<BadSample>(&result)) {
    EXPECT_EQ(bad->name, "x.jpg");
    return bad->reason;
  }
  ADD_FAILURE() << "decoded without complaint";
  return {};
}

Array gradient(int32_t height, int32_t width) {
  Array image = Array::empty(Dtype::U8, {height, width, 3});
  for (int32_t y = 0; y < height; ++y)
    for (int32_t x = 0; x < width; ++x)
      for (int32_t c = 0; c < 3; ++c)
        image.as<uint8_t>()[static_cast<size_t>((y * width + x) * 3 + c)] =
            static_cast<uint8_t>((x * (c + 1) + y * 2) * 255 / (4 * (width + height)));
  return image;
}

TEST(Image, DecodesLikePillow) {
  const auto cases = image_cases("decode");
  ASSERT_GE(cases.size(), 9u);
  for (const auto& one : cases) {
    const std::string file = one["file"];
    const auto far = difference(decoded_fixture(file), image_fixture(one["expected"]));
    EXPECT_LT(far.mean, 0.35) << one["name"];
    EXPECT_LE(far.max, file.find("png") != std::string::npos ? 0 : 4) << one["name"];
  }
}

TEST(Image, ProbesWithoutDecoding) {
  for (const char* file : {"photo.jpg", "rgb.png"}) {
    const std::string bytes = image_fixture(file);
    const auto info = std::get<ImageInfo>(probe_image(image_bytes(bytes), file));
    EXPECT_EQ(info.width, 97);
    EXPECT_EQ(info.height, 61);
  }
}

TEST(Image, ExactResizeIsDecodeThenPillowResize) {
  const std::string file = image_fixture("photo.jpg");
  const ResizeRequest resize{.width = 40, .height = 30, .box = CropBox{3.5, 2, 90, 60}};
  const Array got = std::get<Array>(decode_image(image_bytes(file), "x", {.resize = resize}));
  const Array want = reference::resize(rgb_view(decoded_fixture("photo.jpg")), resize);
  EXPECT_LE(difference(got, std::string(reinterpret_cast<const char*>(want.data()), want.num_bytes())).max, 1);
}

TEST(Image, FastIsCloseToExactForEveryShrinkFactor) {
  const Array picture = gradient(400, 600);
  const std::string file = encode_jpeg(rgb_view(picture), 95);
  for (const int32_t side : {350, 250, 120, 60, 30}) {
    const ResizeRequest resize{.width = side, .height = side, .box = CropBox{50, 20, 450, 390}};
    const Array exact =
        std::get<Array>(decode_image(image_bytes(file), "x", {.decode = ImageDecode::Exact, .resize = resize}));
    const Array fast =
        std::get<Array>(decode_image(image_bytes(file), "x", {.decode = ImageDecode::Fast, .resize = resize}));
    const auto far = difference(fast, std::string(reinterpret_cast<const char*>(exact.data()), exact.num_bytes()));
    EXPECT_LT(far.mean, 1.5) << side;
  }
}

TEST(Image, NormalisedRowEqualsDecodeThenNormalise) {
  const std::string file = image_fixture("photo.jpg");
  const ImageRequest request{.resize = ResizeRequest{.width = 32, .height = 24, .flip_horizontal = true}};
  std::vector<float> got(3 * 32 * 24), want(got.size());
  ASSERT_FALSE(decode_image_normalized(image_bytes(file), "x", request, {}, got));
  const Array image = std::get<Array>(decode_image(image_bytes(file), "x", request));
  reference::normalize(rgb_view(image), false, {}, want);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-6f);
  EXPECT_TRUE(decode_image_normalized(image_bytes("no"), "x", request, {}, got));
}

TEST(Image, PngRoundTripIsExact) {
  const Array picture = gradient(31, 45);
  const std::string file = encode_png(rgb_view(picture));
  const Array got = std::get<Array>(decode_image(image_bytes(file), "x", {}));
  EXPECT_EQ(std::memcmp(got.data(), picture.data(), picture.num_bytes()), 0);
}

TEST(BadImage, EachKindHasItsSentence) {
  const std::string jpeg = image_fixture("photo.jpg"), png = image_fixture("rgb.png");
  EXPECT_EQ(image_refusal(""), "it has 0 bytes");
  EXPECT_NE(image_refusal("GIF89a").find("GIF file; allowed formats are JPEG and PNG"), std::string::npos);
  EXPECT_NE(image_refusal("hello").find("unknown format"), std::string::npos);
  EXPECT_NE(image_refusal(jpeg.substr(0, jpeg.size() / 2)).find("truncated"), std::string::npos);
  EXPECT_NE(image_refusal(png.substr(0, png.size() / 2)).find("truncated"), std::string::npos);
  EXPECT_NE(image_refusal(png.substr(0, 20)).find("truncated"), std::string::npos);
  EXPECT_NE(image_refusal(jpeg.substr(0, 20)).find("damaged"), std::string::npos);
  std::string flipped = png;
  flipped[png.size() / 2] = static_cast<char>(flipped[png.size() / 2] ^ 0x40);
  EXPECT_NE(image_refusal(flipped).find("damaged"), std::string::npos);
  flipped = jpeg;
  for (size_t i = jpeg.size() / 2; i < jpeg.size() / 2 + 40; ++i) flipped[i] = static_cast<char>(0xFF);
  EXPECT_NE(image_refusal(flipped).find("damaged"), std::string::npos);
}

TEST(BadImage, AbsurdDimensionsAreRefusedBeforeAllocating) {
  std::string png = image_fixture("rgb.png");
  std::memcpy(png.data() + 16, "\x7F\xFF\xFF\xFF\x7F\xFF\xFF\xFF", 8);
  EXPECT_NE(image_refusal(png).find("2147483647 x 2147483647"), std::string::npos);
  std::string jpeg = image_fixture("photo.jpg");
  const size_t sof = jpeg.find(std::string("\xFF\xC0", 2));
  ASSERT_NE(sof, std::string::npos);
  std::memcpy(jpeg.data() + sof + 5, "\x80\x00\xF0\x00", 4);
  EXPECT_NE(image_refusal(jpeg).find("61440 x 32768 pixels; at most"), std::string::npos);
  std::memcpy(jpeg.data() + sof + 5, "\xFF\xFF\xFF\xFF", 4);
  EXPECT_NE(image_refusal(jpeg).find("Maximum supported"), std::string::npos);
  EXPECT_NE(image_refusal(image_fixture("photo.jpg"), {.max_pixels = 1000}).find("at most 1000"), std::string::npos);
  const ImageRequest outside{.resize = ResizeRequest{.width = 4, .height = 4, .box = CropBox{0, 0, 500, 10}}};
  EXPECT_NE(image_refusal(image_fixture("photo.jpg"), outside).find("does not lie within"), std::string::npos);
}

TEST(BadImage, StrayBytesCountAsDamageUnlessTolerated) {
  std::string jpeg = image_fixture("photo.jpg");
  jpeg.insert(jpeg.size() - 2, std::string(100, 's'));  // more than the decoder reads ahead
  EXPECT_NE(image_refusal(jpeg).find("extraneous"), std::string::npos);
  EXPECT_TRUE(std::holds_alternative<Array>(decode_image(image_bytes(jpeg), "x", {.tolerate_extra_bytes = true})));
}

TEST(Image, ThreadsDoNotDisturbEachOther) {
  const std::string jpeg = image_fixture("photo.jpg"), png = image_fixture("rgb.png");
  const Array want_jpeg = decoded_fixture("photo.jpg"), want_png = decoded_fixture("rgb.png");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const Array a = std::get<Array>(decode_image(image_bytes(jpeg), "x", {}));
        const Array b = std::get<Array>(decode_image(image_bytes(png), "x", {}));
        wrong += std::memcmp(a.data(), want_jpeg.data(), a.num_bytes()) != 0;
        wrong += std::memcmp(b.data(), want_png.data(), b.num_bytes()) != 0;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace redline::data
