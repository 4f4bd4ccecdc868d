#include "data/codecs/image_resize.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/philox.h"
#include "data/codecs/image_ops.h"
#include "data/testing/image_fixtures.h"

namespace redline::data {
namespace {

ResizeRequest request_of(const nlohmann::json& one) {
  ResizeRequest request;
  request.width = one["width"];
  request.height = one["height"];
  request.filter = one["filter"] == "bicubic" ? ResizeFilter::Bicubic : ResizeFilter::Bilinear;
  if (!one["box"].is_null()) request.box = CropBox{one["box"][0], one["box"][1], one["box"][2], one["box"][3]};
  return request;
}

Array noise_image(int32_t height, int32_t width, uint64_t seed) {
  Array image = Array::empty(Dtype::U8, {height, width, 3});
  KeyedStream draw(seed, 0, 0, 0);
  for (uint8_t& value : image.as<uint8_t>()) value = static_cast<uint8_t>(draw.next_u32() & 255);
  return image;
}

TEST(Resize, ReferenceIsPillowBitForBit) {
  const Array source = decoded_fixture("rgb.png");
  const auto cases = image_cases("resize");
  ASSERT_GE(cases.size(), 12u);
  for (const auto& one : cases) {
    const Array got = reference::resize(rgb_view(source), request_of(one));
    EXPECT_EQ(difference(got, image_fixture(one["expected"])).max, 0) << one["name"];
  }
}

TEST(Resize, FastPathIsPillowBitForBit) {
  const Array source = decoded_fixture("rgb.png");
  for (const auto& one : image_cases("resize")) {
    const auto far = difference(resize_rgb(rgb_view(source), request_of(one)), image_fixture(one["expected"]));
    EXPECT_EQ(far.max, 0) << one["name"];
  }
}

// A window is the whole resize, cut: the same bits, which a box with fractions would miss here and there.
TEST(Resize, AWindowIsAPartOfTheWholeResize) {
  const Array source = noise_image(83, 61, 5);
  ResizeRequest whole;
  whole.width = 50, whole.height = 67;
  const Array all = reference::resize(rgb_view(source), whole);
  const Array wanted = crop_rgb(rgb_view(all), 9, 13, 31, 42);
  ResizeRequest part;
  part.width = 31, part.height = 42;
  part.window = ResizeWindow{50, 67, 9, 13};
  const std::string bytes(reinterpret_cast<const char*>(wanted.data()), wanted.num_bytes());
  EXPECT_EQ(difference(resize_rgb(rgb_view(source), part), bytes).max, 0);
  part.window->x = 10;
  EXPECT_GT(difference(resize_rgb(rgb_view(source), part), bytes).max, 0);
}

TEST(Resize, FastPathEqualsReferenceOnNoise) {
  KeyedStream draw(3, 0, 0, 0);
  for (int round = 0; round < 60; ++round) {
    const auto height = static_cast<int32_t>(draw.uniform_int(1, 90)),
               width = static_cast<int32_t>(draw.uniform_int(1, 90));
    const Array source = noise_image(height, width, static_cast<uint64_t>(round));
    ResizeRequest request;
    request.width = static_cast<int32_t>(draw.uniform_int(1, 70));
    request.height = static_cast<int32_t>(draw.uniform_int(1, 70));
    request.filter = draw.uniform() < 0.5 ? ResizeFilter::Bilinear : ResizeFilter::Bicubic;
    request.flip_horizontal = draw.uniform() < 0.5;
    if (draw.uniform() < 0.7) {
      const double x0 = draw.uniform(0, width * 0.9), y0 = draw.uniform(0, height * 0.9);
      request.box = CropBox{x0, y0, draw.uniform(x0 + 0.05, width), draw.uniform(y0 + 0.05, height)};
    }
    const Array want = reference::resize(rgb_view(source), request);
    const Array got = resize_rgb(rgb_view(source), request);
    const std::string bytes(reinterpret_cast<const char*>(want.data()), want.num_bytes());
    const auto far = difference(got, bytes);
    EXPECT_EQ(far.max, 0) << round;
  }
}

TEST(Resize, SameSizeIsACopyAndFlipTurnsIt) {
  const Array source = noise_image(17, 23, 1);
  const std::string bytes(reinterpret_cast<const char*>(source.data()), source.num_bytes());
  EXPECT_EQ(difference(resize_rgb(rgb_view(source), {.width = 23, .height = 17}), bytes).max, 0);
  const Array flipped = resize_rgb(rgb_view(source), {.width = 23, .height = 17, .flip_horizontal = true});
  EXPECT_EQ(flipped.as<uint8_t>()[0], source.as<uint8_t>()[22 * 3]);
  const Array back = resize_rgb(rgb_view(flipped), {.width = 23, .height = 17, .flip_horizontal = true});
  EXPECT_EQ(difference(back, bytes).max, 0);
}

TEST(Resize, ReadsOnlyTheBox) {
  // Pixels away from the box (beyond the filter's reach) must not matter.
  Array source = noise_image(60, 60, 2);
  ResizeRequest request{.width = 10, .height = 10, .box = CropBox{20, 20, 40, 40}};
  const Array before = resize_rgb(rgb_view(source), request);
  for (int y = 0; y < 60; ++y)
    for (int x = 0; x < 60; ++x)
      if (y < 14 || y >= 46 || x < 14 || x >= 46) source.as<uint8_t>()[static_cast<size_t>((y * 60 + x) * 3)] ^= 0xFF;
  const Array after = resize_rgb(rgb_view(source), request);
  EXPECT_EQ(std::memcmp(before.data(), after.data(), before.num_bytes()), 0);
}

TEST(Normalize, EqualsReferenceWithAndWithoutResize) {
  const Normalization normalization;
  for (const auto& [height, width] :
       std::vector<std::pair<int32_t, int32_t>>{{5, 9}, {16, 32}, {1, 1}, {7, 8}, {30, 41}}) {
    const Array source = noise_image(height, width, 9);
    std::vector<float> got(static_cast<size_t>(3 * height * width)), want(got.size());
    for (const bool flip : {false, true}) {
      normalize_rgb(rgb_view(source), flip, normalization, got);
      reference::normalize(rgb_view(source), flip, normalization, want);
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-6f);
      const ResizeRequest request{.width = 13, .height = 11, .flip_horizontal = flip};
      std::vector<float> fused(3 * 13 * 11), apart(3 * 13 * 11);
      resize_normalize_rgb(rgb_view(source), request, normalization, fused);
      reference::normalize(rgb_view(resize_rgb(rgb_view(source), request)), false, normalization, apart);
      for (size_t i = 0; i < fused.size(); ++i) ASSERT_NEAR(fused[i], apart[i], 2e-6f);
    }
  }
}

TEST(Resize, RefusesBoxesOutsideThePicture) {
  const Array source = noise_image(10, 10, 1);
  EXPECT_THROW(resize_rgb(rgb_view(source), {.width = 5, .height = 5, .box = CropBox{0, 0, 11, 10}}), InternalError);
  EXPECT_THROW(resize_rgb(rgb_view(source), {.width = 5, .height = 5, .box = CropBox{3, 3, 3, 5}}), InternalError);
  EXPECT_THROW(resize_rgb(rgb_view(source), {.width = 0, .height = 5}), InternalError);
}

}  // namespace
}  // namespace redline::data
