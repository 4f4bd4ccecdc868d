// Files are written by libsndfile itself; what was put in is the reference.
#include <gtest/gtest.h>
#include <sndfile.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <vector>

#include "data/codecs/audio.h"
#include "data/codecs/audio_writer.h"
#include "data/files/path_guard.h"

namespace redline::data {
namespace {

std::vector<float> sweep(int64_t frames, int32_t channels, double rate) {
  std::vector<float> samples;
  for (int64_t i = 0; i < frames; ++i)
    for (int32_t c = 0; c < channels; ++c)
      samples.push_back(static_cast<float>(
          0.4 * std::sin(2 * std::numbers::pi * (300.0 + 200.0 * c) * static_cast<double>(i) / rate)));
  return samples;
}

struct Encoded {
  std::filesystem::path path;
  std::string bytes;
  ~Encoded() { std::filesystem::remove(path); }
};

Encoded encoded(int format, const std::vector<float>& samples, int rate, int channels) {
  static int number = 0;
  Encoded file{std::filesystem::temp_directory_path() /
                   ("redline_snd_" + std::to_string(::getpid()) + "_" + std::to_string(number++)),
               ""};
  SF_INFO info{};
  info.samplerate = rate;
  info.channels = channels;
  info.format = format;
  SNDFILE* out = sf_open(file.path.c_str(), SFM_WRITE, &info);
  if (out == nullptr) return file;
  sf_writef_float(out, samples.data(), static_cast<sf_count_t>(samples.size()) / channels);
  sf_close(out);
  std::ifstream in(file.path, std::ios::binary);
  file.bytes.assign(std::istreambuf_iterator<char>(in), {});
  return file;
}

std::span<const std::byte> span_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string refused(const AudioInput& input, const AudioRequest& request = {}) {
  auto result = decode_audio(input, "x", request);
  const auto* bad = std::get_if<BadSample>(&result);
  return bad == nullptr ? "" : bad->reason;
}

// Root mean square of the difference, with the codec's delay taken out.
double distance(std::span<const float> got, const std::vector<float>& want, int64_t most_delay) {
  double best = 1e9;
  for (int64_t delay = 0; delay <= most_delay; ++delay) {
    double sum = 0;
    int64_t count = 0;
    for (size_t i = 4000; i + 4000 < want.size() && i + static_cast<size_t>(delay) < got.size(); ++i, ++count)
      sum += std::pow(got[i + static_cast<size_t>(delay)] - want[i], 2);
    if (count > 0) best = std::min(best, std::sqrt(sum / static_cast<double>(count)));
  }
  return best;
}

struct Case {
  const char* name;
  int format, rate, channels;
  double most_distance;
  int64_t most_delay;
};

class OtherAudio : public ::testing::TestWithParam<Case> {};

TEST_P(OtherAudio, IsDecodedAsWritten) {
  const Case& one = GetParam();
  const auto samples = sweep(one.rate, one.channels, one.rate);
  const Encoded file = encoded(one.format, samples, one.rate, one.channels);
  ASSERT_FALSE(file.bytes.empty()) << "libsndfile cannot write " << one.name;
  AudioRequest request;
  request.mono = false;
  auto result = decode_audio(span_of(file.bytes), "x", request);
  ASSERT_TRUE(std::holds_alternative<Audio>(result)) << std::get<BadSample>(result).reason;
  const Audio& audio = std::get<Audio>(result);
  EXPECT_EQ(audio.rate, one.rate);
  ASSERT_EQ(audio.samples.shape()[0], one.channels);
  EXPECT_NEAR(static_cast<double>(audio.samples.shape()[1]), one.rate, 4000);
  const auto length = static_cast<size_t>(audio.samples.shape()[1]);
  for (int32_t c = 0; c < one.channels; ++c) {
    std::vector<float> want;
    for (size_t i = static_cast<size_t>(c); i < samples.size(); i += static_cast<size_t>(one.channels))
      want.push_back(samples[i]);
    EXPECT_LT(
        distance(audio.samples.as<float>().subspan(static_cast<size_t>(c) * length, length), want, one.most_delay),
        one.most_distance)
        << one.name << " channel " << c;
  }
}

TEST_P(OtherAudio, FromAFileInPartsIsTheSame) {
  const Case& one = GetParam();
  const Encoded file = encoded(one.format, sweep(one.rate, one.channels, one.rate), one.rate, one.channels);
  const DataFile opened = open_user_file(file.path);
  AudioRequest request;
  request.target_rate = 16000;
  request.offset_seconds = 0.25;
  request.duration_seconds = 0.5;
  auto whole = decode_audio(span_of(file.bytes), "x", request);
  auto parts = decode_audio(AudioInput(opened, 0, opened.size()), "x", request);
  ASSERT_TRUE(std::holds_alternative<Audio>(whole)) << std::get<BadSample>(whole).reason;
  ASSERT_TRUE(std::holds_alternative<Audio>(parts)) << std::get<BadSample>(parts).reason;
  const auto a = std::get<Audio>(whole).samples.as<float>(), b = std::get<Audio>(parts).samples.as<float>();
  EXPECT_EQ(a.size(), 8000u);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
}

TEST_P(OtherAudio, ItsLengthIsKnownFromTheWholeFile) {
  const Case& one = GetParam();
  const Encoded file = encoded(one.format, sweep(one.rate, one.channels, one.rate), one.rate, one.channels);
  EXPECT_TRUE(length_needs_whole_file(span_of(file.bytes)));
  const auto info = std::get<AudioInfo>(probe_audio(span_of(file.bytes), file.bytes.size(), "x"));
  EXPECT_NEAR(info.seconds(), 1.0, 0.1);
}

TEST_P(OtherAudio, WhatIsTooLongIsRefused) {
  const Case& one = GetParam();
  const Encoded file = encoded(one.format, sweep(one.rate, one.channels, one.rate), one.rate, one.channels);
  AudioRequest request;
  request.max_seconds = 0.5;
  EXPECT_NE(refused(span_of(file.bytes), request).find("max_duration"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Formats, OtherAudio,
                         ::testing::Values(Case{"aiff", SF_FORMAT_AIFF | SF_FORMAT_PCM_16, 22050, 2, 1e-4, 0},
                                           Case{"au", SF_FORMAT_AU | SF_FORMAT_PCM_16, 16000, 1, 1e-4, 0},
                                           Case{"vorbis", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 44100, 2, 0.02, 0},
                                           Case{"opus", SF_FORMAT_OGG | SF_FORMAT_OPUS, 48000, 1, 0.03, 0},
                                           Case{"mp3", SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44100, 2, 0.03,
                                                2000}),
                         [](const auto& one) { return std::string(one.param.name); });

// Every code of a telephone's WAV, read by our own path, is what libsndfile makes of it.
TEST(Wav, TelephoneLawsAreLibsndfiles) {
  for (const int law : {SF_FORMAT_ULAW, SF_FORMAT_ALAW}) {
    Encoded file = encoded(SF_FORMAT_WAV | law, std::vector<float>(256), 8000, 1);
    const size_t data = file.bytes.find("data");
    ASSERT_NE(data, std::string::npos);
    for (size_t code = 0; code < 256; ++code) file.bytes[data + 8 + code] = static_cast<char>(code);
    std::ofstream(file.path, std::ios::binary) << file.bytes;
    SF_INFO info{};
    SNDFILE* const in = sf_open(file.path.c_str(), SFM_READ, &info);
    std::vector<float> want(256);
    ASSERT_EQ(sf_readf_float(in, want.data(), 256), 256);
    sf_close(in);
    const auto result = decode_audio(span_of(file.bytes), "x", {});
    const auto* const audio = std::get_if<Audio>(&result);
    ASSERT_NE(audio, nullptr) << std::get<BadSample>(result).reason;
    EXPECT_EQ(audio->rate, 8000);
    const auto got = audio->samples.as<float>();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin(), want.end()));
    EXPECT_GT(*std::max_element(want.begin(), want.end()), 0.9f);
  }
}

TEST(OtherAudioRefusals, DamageIsOneSentence) {
  EXPECT_NE(refused(span_of("OggS...............")).find("cannot be decoded"), std::string::npos);
  EXPECT_NE(refused(span_of("FORM....AIFF....")).find("it "), std::string::npos);
  EXPECT_NE(refused(span_of("\xFF\xFB\x90garbage")).find("it "), std::string::npos);
  EXPECT_NE(refused(span_of("....ftypM4A ....")).find("MP4/M4A file; allowed formats are WAV, FLAC, MP3"),
            std::string::npos);
  EXPECT_FALSE(length_needs_whole_file(span_of(encode_wav(sweep(100, 1, 16000), 16000))));
}

}  // namespace
}  // namespace redline::data
