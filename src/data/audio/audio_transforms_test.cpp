#include "data/audio/audio_transforms.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "data/parquet/sequence_transforms.h"

namespace redline::data {
namespace {

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
