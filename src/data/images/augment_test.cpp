// Random changes to pictures: what RandAugment, colour jitter, erasing and mixing do to a sample, by which draws.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/error.h"
#include "data/codecs/image_colour.h"
#include "data/images/image_transforms.h"
#include "data/images/mix_pictures.h"
#include "data/images/rand_augment.h"
#include "data/images/random_erasing.h"
#include "data/testing/augment_fixtures.h"

namespace redline::data {
namespace {

Sample pixel_sample(int64_t id, const Array& image) {
  Sample sample;
  sample.id = id;
  sample.set("image", image);
  return sample;
}

Array float_picture(float value, int64_t size = 8) {
  Array image = Array::empty(Dtype::F32, {3, size, size});
  for (float& v : image.as<float>()) v = value;
  return image;
}

Sample labelled(int64_t id, float value, int64_t label) {
  Sample sample = pixel_sample(id, float_picture(value));
  Array number = Array::empty(Dtype::I64, {});
  number.as<int64_t>()[0] = label;
  sample.set("label", number);
  return sample;
}

std::vector<float> floats_in(const Sample& sample, const char* name = "image") {
  const auto all = sample.find(name)->as<float>();
  return {all.begin(), all.end()};
}

TEST(EvaluationTransform, IsTimmsToOneStep) {
  const AugmentFixtures fixtures;
  for (const auto& one : fixtures.of("evaluate")) {
    ImageSettings settings;
    settings.width = settings.height = one.at("size");
    settings.crop = ImageCrop::Center;
    settings.center_fraction = one.at("share");
    settings.filter = AugmentFixtures::filter(one);
    const Array source = fixtures.source(one);
    Sample sample = pixel_sample(1, source);
    CropImage(settings).apply(sample, {});
    EXPECT_LE(largest_difference(*sample.find("image"), fixtures.picture(one)), 1) << one.dump();
    // A picture cut a pixel beside it is another one.
    settings.center_fraction = one.at("share").get<double>() * 0.93;
    Sample other = pixel_sample(1, source);
    CropImage(settings).apply(other, {});
    EXPECT_GT(largest_difference(*other.find("image"), fixtures.picture(one)), 8);
  }
}

TEST(RandAugment, ReadsTimmsWords) {
  const RandAugmentSettings read = parse_rand_augment("rand-m9-mstd0.5-inc1");
  EXPECT_EQ(read.magnitude, 9.0);
  EXPECT_EQ(read.magnitude_std, 0.5);
  EXPECT_EQ(read.layers, 2);
  EXPECT_EQ(read.chance, 0.5);
  EXPECT_TRUE(read.increasing);
  EXPECT_EQ(parse_rand_augment("rand-n3-p0.8-m7").layers, 3);
  EXPECT_TRUE(std::isinf(parse_rand_augment("rand-m9-mstd101").magnitude_std));
  EXPECT_EQ(RandAugment::names(true).size(), 15u);
  EXPECT_EQ(RandAugment::names(false).size(), 15u);
  for (const char* wrong : {"augmix-m3", "rand-q4", "rand-m", "rand-mx", "rand-n0", "rand-m9-mmax20", "rand-p1.5", ""})
    EXPECT_THROW(parse_rand_augment(wrong), ConfigError) << wrong;
}

// Every operation at the ends of its range, against what its level means.
TEST(RandAugment, LevelsMeanWhatTimmsMean) {
  const AugmentFixtures fixtures;
  const Array source = fixtures.picture(fixtures.of("source").at(0));
  const RgbView view = rgb_view(source);
  RandAugmentSettings settings = parse_rand_augment("rand-m9-mstd0.5-inc1");
  const RandAugment growing(settings);
  const auto same = [&](const Array& a, const Array& b) { return largest_difference(a, b) == 0; };
  EXPECT_TRUE(same(growing.operation(view, "PosterizeIncreasing", 5.0, false), posterize_rgb(view, 2)));
  EXPECT_TRUE(same(growing.operation(view, "SolarizeIncreasing", 9.0, false), solarize_rgb(view, 26)));
  EXPECT_TRUE(same(growing.operation(view, "SolarizeAdd", 9.0, false), solarize_add_rgb(view, 99)));
  EXPECT_TRUE(same(growing.operation(view, "ColorIncreasing", 5.0, false), enhance_rgb(view, Enhance::Color, 1.45)));
  EXPECT_TRUE(same(growing.operation(view, "ColorIncreasing", 5.0, true), enhance_rgb(view, Enhance::Color, 0.55)));
  EXPECT_TRUE(
      same(growing.operation(view, "SharpnessIncreasing", 10.0, true), enhance_rgb(view, Enhance::Sharpness, 0.1)));
  settings.increasing = false;
  const RandAugment plain(settings);
  EXPECT_TRUE(same(plain.operation(view, "Posterize", 5.0, false), posterize_rgb(view, 2)));
  EXPECT_TRUE(same(plain.operation(view, "Solarize", 9.0, false), solarize_rgb(view, 230)));
  EXPECT_TRUE(same(plain.operation(view, "Contrast", 5.0, false), enhance_rgb(view, Enhance::Contrast, 1.0)));
  for (const std::string& name : RandAugment::names(true)) {
    EXPECT_FALSE(same(growing.operation(view, name, 9.0, false), source)) << name;
  }
  // Nothing moves at magnitude 0.
  for (const char* name : {"Rotate", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"})
    EXPECT_TRUE(same(growing.operation(view, name, 0.0, true), source)) << name;
}

TEST(RandAugment, DrawsAreTheSamplesOwn) {
  const AugmentFixtures fixtures;
  const Array source = fixtures.picture(fixtures.of("source").at(0));
  const RandAugment augment(parse_rand_augment("rand-m9-mstd0.5-inc1"));
  const auto run = [&](int64_t id, uint64_t seed, uint64_t epoch) {
    Sample sample = pixel_sample(id, source);
    augment.apply(sample, {seed, epoch});
    return *sample.find("image");
  };
  int changed = 0, epochs_differ = 0, samples_differ = 0;
  for (int64_t id = 0; id < 40; ++id) {
    EXPECT_EQ(largest_difference(run(id, 1, 2), run(id, 1, 2)), 0);
    changed += largest_difference(run(id, 1, 2), source) > 0;
    epochs_differ += largest_difference(run(id, 1, 2), run(id, 1, 3)) > 0;
    samples_differ += largest_difference(run(id, 1, 2), run(id + 1, 1, 2)) > 0;
  }
  EXPECT_GT(changed, 20);  // two layers at one half: a quarter stays as it was
  EXPECT_LT(changed, 40);
  EXPECT_GT(epochs_differ, 25);
  EXPECT_GT(samples_differ, 25);
  EXPECT_EQ(largest_difference(source, fixtures.picture(fixtures.of("source").at(0))), 0) << "never written into";
}

TEST(ColorJitter, StaysWithinItsStrengthAndRefusesFloats) {
  Array grey = Array::empty(Dtype::U8, {2, 2, 3});
  for (uint8_t& v : grey.as<uint8_t>()) v = 100;
  int lowest = 255, highest = 0;
  for (int64_t id = 0; id < 200; ++id) {
    Sample sample = pixel_sample(id, grey);
    ColorJitter({0.4, 0.0, 0.0}).apply(sample, {});
    lowest = std::min<int>(lowest, sample.find("image")->as<uint8_t>()[0]);
    highest = std::max<int>(highest, sample.find("image")->as<uint8_t>()[0]);
  }
  EXPECT_GE(lowest, 59);
  EXPECT_LE(lowest, 65);
  EXPECT_GE(highest, 134);
  EXPECT_LE(highest, 140);
  Sample floats = pixel_sample(1, float_picture(0.5f));
  EXPECT_THROW(ColorJitter({0.4, 0.4, 0.4}).apply(floats, {}), DataError);
}

TEST(RandomErasing, ErasesABoxOfTheRightSizeSometimes) {
  ErasingSettings settings;
  settings.chance = 0.25;
  settings.fill = EraseFill::Constant;
  int erased = 0;
  for (int64_t id = 0; id < 400; ++id) {
    Sample sample = pixel_sample(id, float_picture(5.0f, 32));
    RandomErasing(settings).apply(sample, {3, 1});
    const std::vector<float> out = floats_in(sample);
    const auto zeros = std::count(out.begin(), out.end(), 0.0f);
    if (zeros == 0) continue;
    ++erased;
    EXPECT_GT(zeros, 3 * 32 * 32 * 0.01);
    EXPECT_LT(zeros, 3 * 32 * 32 * 0.36);
    EXPECT_EQ(zeros % 3, 0);
  }
  EXPECT_GT(erased, 70);
  EXPECT_LT(erased, 130);
}

TEST(RandomErasing, FillsAsAsked) {
  ErasingSettings settings;
  settings.chance = 1.0;
  const auto distinct = [&](EraseFill fill) {
    settings.fill = fill;
    Sample sample = pixel_sample(7, float_picture(5.0f, 32));
    RandomErasing(settings).apply(sample, {3, 1});
    const std::vector<float> out = floats_in(sample);
    return std::set<float>(out.begin(), out.end()).size();
  };
  EXPECT_EQ(distinct(EraseFill::Constant), 2u);
  EXPECT_EQ(distinct(EraseFill::Channel), 4u);
  EXPECT_GT(distinct(EraseFill::Pixel), 20u);
  Sample pixels = pixel_sample(1, Array::zeros(Dtype::U8, {4, 4, 3}));
  EXPECT_THROW(RandomErasing(settings).apply(pixels, {}), DataError);
}

TEST(Beta, HasTheRightMeanAndSpread) {
  for (const double alpha : {0.2, 0.8, 1.0, 3.0}) {
    double sum = 0, squares = 0;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      KeyedStream stream(5, 0, static_cast<uint64_t>(i), 0);
      const double x = draw_beta(stream, alpha);
      ASSERT_GE(x, 0.0);
      ASSERT_LE(x, 1.0);
      sum += x, squares += x * x;
    }
    const double mean = sum / kDraws, variance = squares / kDraws - mean * mean;
    EXPECT_NEAR(mean, 0.5, 0.01) << alpha;
    EXPECT_NEAR(variance, 1.0 / (4.0 * (2.0 * alpha + 1.0)), 0.004) << alpha;
  }
}

std::vector<Sample> group_of(int64_t count) {
  std::vector<Sample> group;
  for (int64_t i = 0; i < count; ++i) group.push_back(labelled(10 + i, static_cast<float>(i), i));
  return group;
}

TEST(MixPictures, MixupBlendsWithTheMirroredSample) {
  MixSettings settings;
  settings.mixup_alpha = 0.8;
  std::vector<Sample> group = group_of(5);
  MixPictures(settings).apply(group, {1, 2});
  const double share = floats_in(group[0], kMixedShare)[0];
  EXPECT_GT(share, 0.0);
  EXPECT_LT(share, 1.0);
  for (size_t i = 0; i < 5; ++i) {
    const auto other = static_cast<double>(4 - i);
    const double own = floats_in(group[i], kMixedShare)[0];
    EXPECT_EQ(group[i].find(kMixedLabel)->as<int64_t>()[0], static_cast<int64_t>(4 - i));
    EXPECT_EQ(group[i].find("label")->as<int64_t>()[0], static_cast<int64_t>(i));
    EXPECT_NEAR(own, i == 2 ? 0.0 : share, 1e-7) << "one draw for the group, none for the middle";
    for (const float v : floats_in(group[i])) ASSERT_NEAR(v, static_cast<double>(i) * (1 - own) + other * own, 1e-5);
  }
}

TEST(MixPictures, CutmixSharesAreTheAreaThatWasCut) {
  MixSettings settings;
  settings.cutmix_alpha = 1.0;
  settings.each = true;
  int cut = 0;
  for (uint64_t epoch = 0; epoch < 30; ++epoch) {
    std::vector<Sample> group = group_of(4);
    MixPictures(settings).apply(group, {1, epoch});
    for (size_t i = 0; i < 4; ++i) {
      const std::vector<float> out = floats_in(group[i]);
      const auto foreign = std::count(out.begin(), out.end(), static_cast<float>(3 - i));
      ASSERT_EQ(foreign + std::count(out.begin(), out.end(), static_cast<float>(i)), 3 * 64);
      ASSERT_NEAR(static_cast<double>(foreign) / (3 * 64), floats_in(group[i], kMixedShare)[0], 1e-6);
      cut += foreign > 0;
    }
  }
  EXPECT_GT(cut, 60);
}

TEST(MixPictures, SwitchesAndLeavesAloneAsOftenAsAsked) {
  MixSettings settings;
  settings.mixup_alpha = settings.cutmix_alpha = 1.0;
  settings.chance = 0.5;
  settings.cutmix_chance = 0.25;
  int untouched = 0, blended = 0, cut = 0;
  for (uint64_t epoch = 0; epoch < 400; ++epoch) {
    std::vector<Sample> group = group_of(2);
    MixPictures(settings).apply(group, {9, epoch});
    const std::vector<float> out = floats_in(group[1]);
    const std::set<float> kinds(out.begin(), out.end());
    if (floats_in(group[1], kMixedShare)[0] == 0.0f)
      ++untouched;
    else if (kinds.size() == 1 && *kinds.begin() > 0.0f && *kinds.begin() < 1.0f)
      ++blended;
    else
      ++cut;
  }
  EXPECT_NEAR(untouched, 200, 45);  // and cuts of no area
  EXPECT_NEAR(blended, 150, 40);
  EXPECT_NEAR(cut, 45, 30);
}

TEST(MixPictures, SaysWhatCannotBeMixed) {
  MixSettings settings;
  settings.mixup_alpha = 1.0;
  std::vector<Sample> group = group_of(2);
  group[1].set("image", float_picture(1.0f, 4));
  EXPECT_THROW(MixPictures(settings).apply(group, {}), DataError);
  std::vector<Sample> unlabelled{pixel_sample(1, float_picture(0)), pixel_sample(2, float_picture(1))};
  EXPECT_THROW(MixPictures(settings).apply(unlabelled, {}), DataError);
}

}  // namespace
}  // namespace redline::data
