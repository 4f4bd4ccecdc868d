#include "data/codecs/image_ops.h"

#include <gtest/gtest.h>

#include "data/testing/image_fixtures.h"

namespace redline::data {
namespace {

Array cut(const Array& image, const nlohmann::json& crop) {
  return crop_rgb(rgb_view(image), crop[0], crop[1], crop[2], crop[3]);
}

TEST(ImageOps, RotationIsPillows) {
  const Array source = decoded_fixture("rgb.png");
  const auto cases = image_cases("rotate");
  ASSERT_GE(cases.size(), 7u);
  for (const auto& one : cases) {
    const Array input = one.contains("crop") ? cut(source, one["crop"]) : source;
    const Array got = rotate_rgb(rgb_view(input), one["degrees"]);
    EXPECT_EQ(difference(got, image_fixture(one["expected"])).max, 0) << one["name"];
  }
}

TEST(ImageOps, CropIsBlackOutside) {
  const Array source = decoded_fixture("rgb.png");
  for (const auto& one : image_cases("crop"))
    EXPECT_EQ(difference(cut(source, one["crop"]), image_fixture(one["expected"])).max, 0);
  const Array nothing = crop_rgb(rgb_view(source), 1000, 1000, 4, 4);
  for (const uint8_t value : nothing.as<uint8_t>()) EXPECT_EQ(value, 0);
}

TEST(ImageOps, FlipTwiceIsNothing) {
  const Array source = decoded_fixture("rgb.png");
  const Array once = flip_rgb(rgb_view(source));
  const Array twice = flip_rgb(rgb_view(once));
  EXPECT_NE(std::memcmp(once.data(), source.data(), source.num_bytes()), 0);
  EXPECT_EQ(std::memcmp(twice.data(), source.data(), source.num_bytes()), 0);
}

}  // namespace
}  // namespace redline::data
