#include "models/speech_ssl/noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/error.h"
#include "data/testing/audio_files.h"
#include "models/speech_ssl/multi_speaker_noise.h"

namespace redline::models::speech {
namespace {

namespace ta = data::testing_audio;
using data::encode_wav;

data::Sample clip(int64_t id, const std::vector<float>& samples) {
  data::Sample sample;
  sample.id = id;
  data::Array audio = data::Array::empty(data::Dtype::F32, {static_cast<int64_t>(samples.size())});
  std::copy(samples.begin(), samples.end(), audio.as<float>().begin());
  sample.set("audio", audio);
  return sample;
}

std::vector<float> values(const data::Sample& sample, const char* name) {
  const auto span = sample.find(name)->as<float>();
  return {span.begin(), span.end()};
}

double energy(const std::vector<float>& x) {
  double sum = 0;
  for (float v : x) sum += static_cast<double>(v) * v;
  return sum;
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
  std::shared_ptr<data::ClipBank> bank(const char* manifest, int64_t bytes = 1 << 24) const {
    data::DatasetConfig config;
    config.allow_absolute = true;
    return std::make_shared<data::ClipBank>(std::vector<ta::fs::path>{folder_ / manifest}, config, bytes);
  }
  ta::TempFolder folder_;
};

TEST_F(NoiseTest, TakesAWindowOfLongNoise) {
  const auto whole = ta::tone(1, 3.0);
  data::Sample sample = clip(5, std::vector<float>(16000, 0.1f));
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
  data::Sample uncached = clip(5, std::vector<float>(16000, 0.1f));
  NoiseSampler(bank("long.json", 0), 16000, false).apply(uncached, {1, 0});
  EXPECT_EQ(values(uncached, "noise"), noise);
  NoiseSampler(bank("long.json"), 16000, false).apply(uncached, {1, 1});
  EXPECT_NE(values(uncached, "noise"), noise);
}

TEST_F(NoiseTest, ShortNoiseStaysShortAndSilenceBecomesWhite) {
  data::Sample sample = clip(5, std::vector<float>(16000, 0.1f));
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
  data::Sample sample = clip(5, std::vector<float>(16000, 0.1f));
  NoiseSampler(bank("short.json"), 16000, false).apply(sample, {1, 0});
  AddNoise().apply(sample, {1, 0});
  const auto noisy = values(sample, "noisy_audio"), noise = values(sample, "noise");
  ASSERT_EQ(noisy.size(), 16000u);
  for (size_t i = 0; i < 16000; ++i) ASSERT_FLOAT_EQ(noisy[i], 0.1f + (i < 4000 ? noise[i] : 0.0f));
}

data::MultiSpeakerNoiseConfig always() {
  data::MultiSpeakerNoiseConfig config;
  config.prob = 1.0;
  config.noise_ratio = 1.0;
  config.min_mix_rate = config.max_mix_rate = 0.5;
  config.max_num_segments = config.max_num_speakers = 1;
  return config;
}

std::vector<data::Sample> speakers() {
  std::vector<data::Sample> group;
  for (int i = 0; i < 4; ++i) {
    group.push_back(clip(100 + i, ta::tone(i * 7, 0.5 + 0.25 * i)));
    std::vector<float> noise(3000 + 500 * static_cast<size_t>(i));
    for (size_t k = 0; k < noise.size(); ++k) noise[k] = static_cast<float>(k % 17) / 17.0f - 0.5f;
    data::Array array = data::Array::empty(data::Dtype::F32, {static_cast<int64_t>(noise.size())});
    std::copy(noise.begin(), noise.end(), array.as<float>().begin());
    group.back().set("noise", array);
  }
  return group;
}

// The energy ratio asked for is the one that comes out, counted over the clip's whole length as the reference does.
TEST(MultiSpeakerNoise, HitsTheEnergyRatioAndTheMixRate) {
  for (bool by_noise : {true, false}) {
    data::MultiSpeakerNoiseConfig config = always();
    config.noise_ratio = by_noise ? 1.0 : 0.0;
    config.min_r_noise = config.max_r_noise = 7.0;
    config.min_r_speech = config.max_r_speech = -3.0;
    auto group = speakers();
    MultiSpeakerNoise(config, true).apply(group, {1, 0});
    for (const data::Sample& sample : group) {
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
  data::MultiSpeakerNoiseConfig config = always();
  config.noise_ratio = 0.0;
  std::vector<data::Sample> group{clip(1, std::vector<float>(1000, 0.25f)), clip(2, std::vector<float>(400, -0.75f))};
  for (data::Sample& sample : group) sample.set("noise", data::Array::zeros(data::Dtype::F32, {10}));
  MultiSpeakerNoise(config, true).apply(group, {1, 0});
  for (float x : values(group[0], "noise")) EXPECT_LE(x, 0.0f);
  for (float x : values(group[1], "noise")) EXPECT_GE(x, 0.0f);
}

TEST(MultiSpeakerNoise, SegmentsDoNotOverlapAndFillTheMixRate) {
  data::MultiSpeakerNoiseConfig config = always();
  config.min_num_segments = config.max_num_segments = 4;
  config.min_mix_rate = config.max_mix_rate = 0.8;
  for (uint64_t epoch = 0; epoch < 50; ++epoch) {
    std::vector<data::Sample> group{clip(1, std::vector<float>(1000, 0.25f))};
    data::Array ones = data::Array::empty(data::Dtype::F32, {70});
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
  data::MultiSpeakerNoiseConfig config = always();
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
  data::MultiSpeakerNoiseConfig config = always();
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
  data::MultiSpeakerNoiseConfig config;
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

}  // namespace
}  // namespace redline::models::speech
