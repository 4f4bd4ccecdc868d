#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/error.h"
#include "data/audio/audio_testing.h"
#include "data/audio/audio_transforms.h"
#include "data/audio/multi_speaker_noise.h"
#include "data/codecs/image_writer.h"
#include "data/images/image_transforms.h"
#include "data/parquet/sequence_transforms.h"

namespace redline::data {
namespace {

namespace ta = testing_audio;

Sample clip(int64_t id, const std::vector<float>& samples) {
  Sample sample;
  sample.id = id;
  Array audio = Array::empty(Dtype::F32, {static_cast<int64_t>(samples.size())});
  std::copy(samples.begin(), samples.end(), audio.as<float>().begin());
  sample.set("audio", audio);
  return sample;
}

std::vector<float> values(const Sample& sample, const char* name) {
  const auto span = sample.find(name)->as<float>();
  return {span.begin(), span.end()};
}

double energy(const std::vector<float>& x) {
  double sum = 0;
  for (float v : x) sum += static_cast<double>(v) * v;
  return sum;
}

TEST(MinimumLength, RepeatsOrFillsShortClips) {
  Sample sample = clip(0, {1, 2, 3});
  MinimumLength(7.0 / 16000, 16000, true).apply(sample, {});
  EXPECT_EQ(values(sample, "audio"), (std::vector<float>{1, 2, 3, 1, 2, 3, 1}));
  sample = clip(0, {1, 2, 3});
  MinimumLength(5.0 / 16000, 16000, false).apply(sample, {});
  EXPECT_EQ(values(sample, "audio"), (std::vector<float>{1, 2, 3, 0, 0}));
  sample = clip(0, {1, 2, 3});
  MinimumLength(2.0 / 16000, 16000, true).apply(sample, {});
  EXPECT_EQ(values(sample, "audio").size(), 3u);
  Sample empty = clip(0, {});
  EXPECT_THROW(MinimumLength(1.0, 16000, true).apply(empty, {}), DataError);
}

TEST(RandomGain, IsKeyedAndInRange) {
  std::set<float> seen;
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    Sample sample = clip(3, {1.0f});
    RandomGain(-6, 6).apply(sample, {1, epoch});
    const float gain = values(sample, "audio")[0];
    EXPECT_GE(gain, 0.5f);
    EXPECT_LE(gain, 2.0f);
    seen.insert(gain);
    Sample again = clip(3, {1.0f});
    RandomGain(-6, 6).apply(again, {1, epoch});
    EXPECT_EQ(values(again, "audio")[0], gain);
  }
  EXPECT_EQ(seen.size(), 20u);
}

class NoiseTest : public testing::Test {
 protected:
  NoiseTest() : folder_("noise") {
    folder_.write("long.wav", encode_wav(ta::tone(1, 3.0), 16000));
    folder_.write("short.wav", encode_wav(ta::tone(2, 0.25), 16000));
    folder_.write("silent.wav", encode_wav(std::vector<float>(48000, 0.0f), 16000));
    folder_.write("long.json", ta::manifest_line("long.wav", 3.0));
    folder_.write("short.json", ta::manifest_line("short.wav", 0.25));
    folder_.write("silent.json", ta::manifest_line("silent.wav", 3.0));
    folder_.write("gone.json", ta::manifest_line("gone.wav", 3.0));
  }
  std::shared_ptr<NoiseBank> bank(const char* manifest, int64_t bytes = 1 << 24) const {
    return std::make_shared<NoiseBank>(std::vector<ta::fs::path>{folder_ / manifest}, ManifestOptions{}, bytes);
  }
  ta::TempFolder folder_;
};

TEST_F(NoiseTest, TakesAWindowOfLongNoise) {
  const auto whole = ta::tone(1, 3.0);
  Sample sample = clip(5, std::vector<float>(16000, 0.1f));
  NoiseSampler(bank("long.json"), 16000, false).apply(sample, {1, 0});
  const auto noise = values(sample, "noise");
  ASSERT_EQ(noise.size(), 16000u);
  bool found = false;
  for (size_t at = 0; at + 16000 <= whole.size() && !found; ++at) {
    found = std::fabs(whole[at] - noise[0]) < 1e-4 && std::fabs(whole[at + 1] - noise[1]) < 1e-4 &&
            std::fabs(whole[at + 15999] - noise[15999]) < 1e-4;
  }
  EXPECT_TRUE(found);
  // The same without a cache, another in the next epoch.
  Sample uncached = clip(5, std::vector<float>(16000, 0.1f));
  NoiseSampler(bank("long.json", 0), 16000, false).apply(uncached, {1, 0});
  EXPECT_EQ(values(uncached, "noise"), noise);
  NoiseSampler(bank("long.json"), 16000, false).apply(uncached, {1, 1});
  EXPECT_NE(values(uncached, "noise"), noise);
}

TEST_F(NoiseTest, ShortNoiseStaysShortAndSilenceBecomesWhite) {
  Sample sample = clip(5, std::vector<float>(16000, 0.1f));
  NoiseSampler(bank("short.json"), 16000, false).apply(sample, {1, 0});
  EXPECT_EQ(values(sample, "noise").size(), 4000u);
  NoiseSampler(bank("silent.json"), 16000, false).apply(sample, {1, 0});
  const double level = 10.0 * std::log10(energy(values(sample, "noise")) / 16000.0);
  EXPECT_GT(level, -91.0);
  EXPECT_LT(level, -45.0);
  NoiseSampler(bank("gone.json"), 16000, false).apply(sample, {1, 0});
  EXPECT_EQ(values(sample, "noise"), std::vector<float>(16000, 0.0f)) << "after twenty tries: zeros";
  NoiseSampler(nullptr, 16000, false).apply(sample, {1, 0});
  EXPECT_EQ(values(sample, "noise"), std::vector<float>(16000, 0.0f));
}

TEST_F(NoiseTest, AddNoiseKeepsTheAudiosLength) {
  Sample sample = clip(5, std::vector<float>(16000, 0.1f));
  NoiseSampler(bank("short.json"), 16000, false).apply(sample, {1, 0});
  AddNoise().apply(sample, {1, 0});
  const auto noisy = values(sample, "noisy_audio"), noise = values(sample, "noise");
  ASSERT_EQ(noisy.size(), 16000u);
  for (size_t i = 0; i < 16000; ++i) ASSERT_FLOAT_EQ(noisy[i], 0.1f + (i < 4000 ? noise[i] : 0.0f));
}

MultiSpeakerNoiseConfig always() {
  MultiSpeakerNoiseConfig config;
  config.prob = 1.0;
  config.noise_ratio = 1.0;
  config.min_mix_rate = config.max_mix_rate = 0.5;
  config.max_num_segments = config.max_num_speakers = 1;
  return config;
}

std::vector<Sample> speakers() {
  std::vector<Sample> group;
  for (int i = 0; i < 4; ++i) {
    group.push_back(clip(100 + i, ta::tone(i * 7, 0.5 + 0.25 * i)));
    std::vector<float> noise(3000 + 500 * static_cast<size_t>(i));
    for (size_t k = 0; k < noise.size(); ++k) noise[k] = static_cast<float>(k % 17) / 17.0f - 0.5f;
    Array array = Array::empty(Dtype::F32, {static_cast<int64_t>(noise.size())});
    std::copy(noise.begin(), noise.end(), array.as<float>().begin());
    group.back().set("noise", array);
  }
  return group;
}

// The energy ratio asked for is the one that comes out, counted over the clip's whole length as the reference does.
TEST(MultiSpeakerNoise, HitsTheEnergyRatioAndTheMixRate) {
  for (bool by_noise : {true, false}) {
    MultiSpeakerNoiseConfig config = always();
    config.noise_ratio = by_noise ? 1.0 : 0.0;
    config.min_r_noise = config.max_r_noise = 7.0;
    config.min_r_speech = config.max_r_speech = -3.0;
    auto group = speakers();
    MultiSpeakerNoise(config, true).apply(group, {1, 0});
    for (const Sample& sample : group) {
      const auto audio = values(sample, "audio"), noisy = values(sample, "noisy_audio"),
                 noise = values(sample, "noise");
      ASSERT_EQ(noisy.size(), audio.size());
      ASSERT_EQ(noise.size(), audio.size());
      size_t covered = 0;
      for (size_t i = 0; i < audio.size(); ++i) {
        ASSERT_NEAR(noisy[i], audio[i] + noise[i], 1e-6);
        covered += noise[i] != 0.0f;
      }
      EXPECT_NEAR(10.0 * std::log10(energy(audio) / energy(noise)), by_noise ? 7.0 : -3.0, 1e-3);
      EXPECT_LE(covered, audio.size() / 2 + 1);
      EXPECT_GE(covered, audio.size() * 2 / 5) << "a tone crosses zero now and then";
    }
  }
}

TEST(MultiSpeakerNoise, SpeechComesFromOtherClipsOnly) {
  MultiSpeakerNoiseConfig config = always();
  config.noise_ratio = 0.0;
  std::vector<Sample> group{clip(1, std::vector<float>(1000, 0.25f)), clip(2, std::vector<float>(400, -0.75f))};
  for (Sample& sample : group) sample.set("noise", Array::zeros(Dtype::F32, {10}));
  MultiSpeakerNoise(config, true).apply(group, {1, 0});
  for (float x : values(group[0], "noise")) EXPECT_LE(x, 0.0f);
  for (float x : values(group[1], "noise")) EXPECT_GE(x, 0.0f);
}

TEST(MultiSpeakerNoise, SegmentsDoNotOverlapAndFillTheMixRate) {
  MultiSpeakerNoiseConfig config = always();
  config.min_num_segments = config.max_num_segments = 4;
  config.min_mix_rate = config.max_mix_rate = 0.8;
  for (uint64_t epoch = 0; epoch < 50; ++epoch) {
    std::vector<Sample> group{clip(1, std::vector<float>(1000, 0.25f))};
    Array ones = Array::empty(Dtype::F32, {70});
    for (float& x : ones.as<float>()) x = 1.0f;
    group[0].set("noise", ones);
    MultiSpeakerNoise(config, true).apply(group, {1, epoch});
    const auto noise = values(group[0], "noise");
    std::set<float> levels(noise.begin(), noise.end());
    EXPECT_EQ(levels.size(), 2u) << "0 and one scale: overlapping pieces would add up";
    EXPECT_EQ(std::count(noise.begin(), noise.end(), 0.0f), 200);
  }
}

// A sample's mixture depends on the group and its own key, not on its place in the group or on what is split off later.
TEST(MultiSpeakerNoise, DrawsAreKeyedBySample) {
  MultiSpeakerNoiseConfig config = always();
  config.prob = 0.5;
  config.noise_ratio = 0.5;
  config.max_num_segments = 3;
  auto group = speakers(), again = speakers();
  MultiSpeakerNoise(config, false).apply(group, {1, 0});
  MultiSpeakerNoise(config, false).apply(again, {1, 0});
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(values(group[i], "noisy_audio"), values(again[i], "noisy_audio"));
  auto other = speakers();
  MultiSpeakerNoise(config, false).apply(other, {1, 1});
  int different = 0;
  for (size_t i = 0; i < 4; ++i) different += values(group[i], "noisy_audio") != values(other[i], "noisy_audio");
  EXPECT_GT(different, 0);
  auto source = speakers();
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(values(group[i], "audio"), values(source[i], "audio")) << "the clean signal is never touched";
}

TEST(MultiSpeakerNoise, SkippedClipsStayCleanUnlessTheQuirkIsWanted) {
  MultiSpeakerNoiseConfig config = always();
  config.prob = 0.0;
  auto group = speakers();
  MultiSpeakerNoise(config, false).apply(group, {1, 0});
  EXPECT_EQ(values(group[2], "noisy_audio"), values(group[2], "audio"));
  config.reference_quirks = true;
  group = speakers();
  MultiSpeakerNoise(config, false).apply(group, {1, 0});
  const auto noisy = values(group[2], "noisy_audio"), audio = values(group[2], "audio"),
             noise = values(group[2], "noise");
  ASSERT_EQ(noisy.size(), noise.size()) << "the reference takes the noise clip's length";
  for (size_t i = 0; i < noisy.size(); ++i) ASSERT_FLOAT_EQ(noisy[i], audio[i] + noise[i]);
}

TEST(MultiSpeakerNoise, RefusesRangesUpsideDown) {
  MultiSpeakerNoiseConfig config;
  config.min_r_noise = 30;
  EXPECT_THROW(MultiSpeakerNoise(config, false), ConfigError);
}

TEST(SplitEvenlyAtRandom, IsAMultinomial) {
  for (int64_t total : {100, 400'000}) {
    double mean = 0, square = 0;
    constexpr int kRounds = 400;
    for (uint64_t round = 0; round < kRounds; ++round) {
      KeyedStream stream(round, 0, 0, 1);
      const auto counts = split_evenly_at_random(total, 5, stream);
      int64_t sum = 0;
      for (int64_t count : counts) sum += count;
      ASSERT_EQ(sum, total);
      mean += static_cast<double>(counts[2]) / kRounds;
      square += static_cast<double>(counts[2]) * static_cast<double>(counts[2]) / kRounds;
    }
    const double expected = static_cast<double>(total) / 5, variance = expected * 0.8;
    EXPECT_NEAR(mean, expected, 4 * std::sqrt(variance / kRounds));
    EXPECT_NEAR((square - mean * mean) / variance, 1.0, 0.3);
  }
}

Array gradient(int32_t width, int32_t height) {
  Array image = Array::empty(Dtype::U8, {height, width, 3});
  for (int32_t y = 0; y < height; ++y) {
    for (int32_t x = 0; x < width; ++x) {
      uint8_t* pixel = image.as<uint8_t>().data() + (y * width + x) * 3;
      pixel[0] = static_cast<uint8_t>(x * 255 / width), pixel[1] = static_cast<uint8_t>(y * 255 / height),
      pixel[2] = 128;
    }
  }
  return image;
}

TEST(DrawCrop, StaysInsideAndFollowsItsRanges) {
  ImageSettings settings;
  settings.crop = ImageCrop::RandomResized;
  for (uint64_t i = 0; i < 500; ++i) {
    KeyedStream stream(i, 0, 0, 1);
    const CropBox box = draw_crop(settings, 300, 200, stream);
    EXPECT_GE(box.x0, 0);
    EXPECT_LE(box.x1, 300);
    EXPECT_LE(box.y1, 200);
    const double area = (box.x1 - box.x0) * (box.y1 - box.y0) / 60000.0, ratio = (box.x1 - box.x0) / (box.y1 - box.y0);
    EXPECT_GE(area, 0.07);
    EXPECT_LE(ratio, 1.36);
    EXPECT_GE(ratio, 0.73);
  }
  settings.min_scale = settings.max_scale = 1.0;
  KeyedStream stream(1, 0, 0, 1);
  const CropBox fallback = draw_crop(settings, 400, 100, stream);
  EXPECT_NEAR((fallback.x1 - fallback.x0) / (fallback.y1 - fallback.y0), 4.0 / 3.0, 0.02)
      << "no box fits: the centre at the nearest ratio";
  settings.crop = ImageCrop::Center;
  const CropBox center = draw_crop(settings, 400, 200, stream);
  EXPECT_DOUBLE_EQ(center.y1 - center.y0, 175.0);
  EXPECT_DOUBLE_EQ(center.x1 - center.x0, 175.0);
}

TEST(PrepareImage, SameFromBytesAndFromPixels) {
  const Array pixels = gradient(120, 90);
  const std::string png = encode_png(rgb_view(pixels));
  ImageSettings settings;
  settings.width = settings.height = 32;
  settings.crop = ImageCrop::RandomResized;
  settings.flip_chance = 0.5;
  for (double degrees : {0.0, 10.0}) {
    settings.max_degrees = degrees;
    for (uint64_t epoch = 0; epoch < 4; ++epoch) {
      Sample encoded, decoded;
      encoded.id = decoded.id = 8;
      Array bytes = Array::empty(Dtype::U8, {static_cast<int64_t>(png.size())});
      std::copy(png.begin(), png.end(), reinterpret_cast<char*>(bytes.data()));
      encoded.set("image_bytes", bytes);
      decoded.set("image_bytes", bytes);
      DecodeImage().apply(decoded, {});
      PrepareImage(settings).apply(encoded, {1, epoch});
      PrepareImage(settings).apply(decoded, {1, epoch});
      EXPECT_EQ(encoded.find("image")->shape(), (Shape{3, 32, 32}));
      EXPECT_EQ(encoded.find("image_bytes"), nullptr);
      EXPECT_EQ(values(encoded, "image"), values(decoded, "image"));
    }
  }
}

TEST(PrepareImage, NormalisesAndNamesWhatIsWrong) {
  const Array grey = Array::zeros(Dtype::U8, {8, 8, 3});
  for (uint8_t& v : grey.as<uint8_t>()) v = 255;
  Sample sample;
  sample.set("image", grey);
  ImageSettings settings;
  settings.width = settings.height = 4;
  PrepareImage(settings).apply(sample, {});
  EXPECT_NEAR(values(sample, "image")[0], (1.0 - 0.485) / 0.229, 1e-5);
  EXPECT_NEAR(values(sample, "image")[47], (1.0 - 0.406) / 0.225, 1e-5);
  Sample junk;
  Array bytes = Array::zeros(Dtype::U8, {100});
  junk.set("image_bytes", bytes);
  EXPECT_THROW(PrepareImage(settings).apply(junk, {}), DataError);
}

TEST(Truncate, CutsSequencesAndSharesMemory) {
  Sample sample = clip(1, {1, 2, 3, 4});
  const void* memory = sample.find("audio")->data();
  Array label = Array::zeros(Dtype::I64, {});
  sample.set("label", label);
  Truncate(3).apply(sample, {});
  EXPECT_EQ(values(sample, "audio"), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(sample.find("audio")->data(), memory);
  EXPECT_TRUE(sample.find("label")->shape().empty());
}

}  // namespace
}  // namespace redline::data
