#include "data/codecs/image_colour.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "data/codecs/image_affine.h"
#include "data/testing/augment_fixtures.h"

namespace redline::data {
namespace {

using Case = nlohmann::json;
const std::array<uint8_t, 3> kFixtureFill{124, 116, 104};

const std::map<std::string, std::function<Array(const RgbView&, const Case&)>>& operations() {
  const auto enhance = [](Enhance what) {
    return [what](const RgbView& x, const Case& one) { return enhance_rgb(x, what, one.at("amount")); };
  };
  static const std::map<std::string, std::function<Array(const RgbView&, const Case&)>> all = {
      {"autocontrast", [](const RgbView& x, const Case&) { return autocontrast_rgb(x); }},
      {"equalize", [](const RgbView& x, const Case&) { return equalize_rgb(x); }},
      {"invert", [](const RgbView& x, const Case&) { return invert_rgb(x); }},
      {"posterize", [](const RgbView& x, const Case& one) { return posterize_rgb(x, one.at("amount")); }},
      {"solarize", [](const RgbView& x, const Case& one) { return solarize_rgb(x, one.at("amount")); }},
      {"solarize_add", [](const RgbView& x, const Case& one) { return solarize_add_rgb(x, one.at("amount")); }},
      {"brightness", enhance(Enhance::Brightness)},
      {"contrast", enhance(Enhance::Contrast)},
      {"color", enhance(Enhance::Color)},
      {"sharpness", enhance(Enhance::Sharpness)},
      {"rotate",
       [](const RgbView& x, const Case& one) {
         return rotate_rgb(x, one.at("amount"), AugmentFixtures::filter(one), kFixtureFill);
       }},
      {"affine",
       [](const RgbView& x, const Case& one) {
         return affine_rgb(x, one.at("matrix").get<AffineMap>(), AugmentFixtures::filter(one), kFixtureFill);
       }},
      {"grey", [](const RgbView& x, const Case&) {
         Array out = posterize_rgb(x, 8);
         make_grey(out.as<uint8_t>().data(), int64_t{x.width} * x.height);
         return out;
       }}};
  return all;
}

TEST(ImageColour, EveryOperationIsPillows) {
  const AugmentFixtures fixtures;
  for (const auto& [name, apply] : operations()) {
    const auto cases = fixtures.of(name);
    EXPECT_FALSE(cases.empty()) << name;
    for (const Case& one : cases) {
      const Array source = fixtures.source(one);
      const Array made = apply(rgb_view(source), one), expected = fixtures.picture(one);
      // Pillow cuts its sums, so a processor that multiplies and adds in one step may differ in single values.
      ASSERT_LE(largest_difference(made, expected), 1) << one.dump();
      int64_t other = 0;
      for (size_t i = 0; i < made.num_bytes(); ++i) other += made.as<uint8_t>()[i] != expected.as<uint8_t>()[i];
      EXPECT_LE(other, made.numel() / 50) << one.dump();
    }
  }
}

// The comparison can fail: a neighbouring amount is another picture.
TEST(ImageColour, AnotherAmountIsAnotherPicture) {
  const AugmentFixtures fixtures;
  for (const char* name : {"brightness", "contrast", "color", "sharpness", "rotate"}) {
    Case one = fixtures.of(name).at(0);
    one["amount"] = one.at("amount").get<double>() + 0.4;
    const Array source = fixtures.source(one);
    EXPECT_GT(largest_difference(operations().at(name)(rgb_view(source), one), fixtures.picture(one)), 3) << name;
  }
}

TEST(ImageColour, APictureOfOneColourStays) {
  Array flat = Array::empty(Dtype::U8, {4, 5, 3});
  for (uint8_t& v : flat.as<uint8_t>()) v = 90;
  EXPECT_EQ(largest_difference(autocontrast_rgb(rgb_view(flat)), flat), 0);
  EXPECT_EQ(largest_difference(equalize_rgb(rgb_view(flat)), flat), 0);
  EXPECT_EQ(largest_difference(enhance_rgb(rgb_view(flat), Enhance::Sharpness, 1.9), flat), 0);
}

}  // namespace
}  // namespace redline::data
