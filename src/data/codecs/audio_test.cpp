#include "data/codecs/audio.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <numbers>
#include <thread>
#include <vector>

#include "data/codecs/audio_writer.h"
#include "data/workers/item_memory.h"

namespace redline::data {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::vector<float> tone(int64_t frames, int32_t channels = 1, double hertz = 440.0, double rate = 16000.0) {
  std::vector<float> samples;
  for (int64_t i = 0; i < frames; ++i)
    for (int32_t c = 0; c < channels; ++c)
      samples.push_back(
          static_cast<float>(0.6 * std::sin(2 * std::numbers::pi * hertz * (c + 1) * static_cast<double>(i) / rate)));
  return samples;
}

Audio decoded(const std::string& file, const AudioRequest& request = {}) {
  auto result = decode_audio(bytes_of(file), "x", request);
  if (auto* bad = std::get_if<BadSample>(&result)) ADD_FAILURE() << bad->reason;
  return std::holds_alternative<Audio>(result) ? std::get<Audio>(std::move(result)) : Audio{};
}

std::string refusal(const std::string& file, const AudioRequest& request = {}) {
  auto result = decode_audio(bytes_of(file), "x", request);
  if (auto* bad = std::get_if<BadSample>(&result)) {
    EXPECT_EQ(bad->name, "x");
    return bad->reason;
  }
  ADD_FAILURE() << "decoded without complaint";
  return {};
}

void expect_near(std::span<const float> got, std::span<const float> want, float tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << i;
}

TEST(Wav, EveryEncodingComesBack) {
  const auto samples = tone(1003);
  const std::pair<WavEncoding, float> cases[] = {
      {WavEncoding::Pcm8, 1.0f / 128}, {WavEncoding::Pcm16, 1.0f / 32768}, {WavEncoding::Pcm24, 1.0f / 8388608},
      {WavEncoding::Pcm32, 1e-7f},     {WavEncoding::Float32, 0.0f},       {WavEncoding::Float64, 0.0f}};
  for (const auto& [encoding, step] : cases) {
    for (const bool extensible : {false, true}) {
      const Audio audio = decoded(encode_wav(samples, 16000, 1, {encoding, extensible}));
      EXPECT_EQ(audio.rate, 16000);
      expect_near(audio.samples.as<float>(), samples, step);
    }
  }
}

TEST(Wav, FullScaleIsExact) {
  const std::vector<float> samples = {-1.0f, 32767.0f / 32768, 0.0f, 1.0f};
  const Audio audio = decoded(encode_wav(samples, 8000));
  EXPECT_EQ(audio.samples.as<float>()[0], -1.0f);
  EXPECT_EQ(audio.samples.as<float>()[1], 32767.0f / 32768);
  EXPECT_EQ(audio.samples.as<float>()[3], 32767.0f / 32768);  // clipped by the writer
}

template <class Encode>
void check_channels(Encode encode) {
  const auto samples = tone(5000, 3);
  const std::string file = encode(samples, 3);
  const Audio mixed = decoded(file);
  AudioRequest request;
  request.channel = 2;
  const Audio third = decoded(file, request);
  request.mono = false;
  const Audio all = decoded(file, request);
  EXPECT_EQ(all.samples.shape(), (Shape{3, 5000}));
  for (size_t i = 0; i < 5000; ++i) {
    EXPECT_NEAR(mixed.samples.as<float>()[i], (samples[3 * i] + samples[3 * i + 1] + samples[3 * i + 2]) / 3, 1e-4f);
    EXPECT_NEAR(third.samples.as<float>()[i], samples[3 * i + 2], 1e-4f);
    EXPECT_NEAR(all.samples.as<float>()[5000 + i], samples[3 * i + 1], 1e-4f);
  }
  request = {};
  request.channel = 3;
  EXPECT_NE(refusal(file, request).find("channel 3"), std::string::npos);
}

TEST(Wav, MixesSelectsOrKeepsChannels) {
  check_channels([](const auto& samples, int channels) { return encode_wav(samples, 16000, channels); });
}
TEST(Flac, MixesSelectsOrKeepsChannels) {
  check_channels([](const auto& samples, int channels) { return encode_flac(samples, 16000, channels); });
}

TEST(Flac, StereoMixIsTheAverage) {
  const auto samples = tone(4000, 2);
  const Audio mixed = decoded(encode_flac(samples, 16000, 2));
  for (size_t i = 0; i < 4000; ++i)
    EXPECT_NEAR(mixed.samples.as<float>()[i], (samples[2 * i] + samples[2 * i + 1]) / 2, 5e-5f);
}

TEST(Flac, EqualsWavBitForBit) {
  const auto samples = tone(50000);
  for (const int bits : {16, 24}) {
    const WavEncoding encoding = bits == 16 ? WavEncoding::Pcm16 : WavEncoding::Pcm24;
    const Audio wav = decoded(encode_wav(samples, 16000, 1, {encoding, false}));
    const Audio flac = decoded(encode_flac(samples, 16000, 1, {.bits = bits}));
    ASSERT_EQ(wav.samples.numel(), flac.samples.numel());
    EXPECT_EQ(std::memcmp(wav.samples.data(), flac.samples.data(), wav.samples.num_bytes()), 0);
  }
}

TEST(Flac, ALengthLeftOpenIsFoundByDecoding) {
  const auto samples = tone(20000);
  const std::string file = encode_flac(samples, 16000, 1, {.known_length = false});
  EXPECT_EQ(std::get<AudioInfo>(probe_audio(bytes_of(file), file.size(), "x")).frames, -1);
  EXPECT_EQ(decoded(file).samples.numel(), 20000);
  AudioRequest request;
  request.offset_seconds = 1.0;
  EXPECT_EQ(decoded(file, request).samples.numel(), 4000);
  request.max_frames = 100;
  EXPECT_NE(refusal(file, request).find("more frames than the limit of 100"), std::string::npos);
}

TEST(Audio, ALongerClipThanMaxSecondsIsRefusedWhetherItsHeaderTellsOrNot) {
  const auto samples = tone(20000);
  AudioRequest request;
  for (const double rate : {16000.0, 8000.0}) {
    request.target_rate = static_cast<int32_t>(rate);
    for (const std::string& file : {encode_flac(samples, 16000, 1, {.known_length = false}),
                                    encode_flac(samples, 16000), encode_wav(samples, 16000)}) {
      request.max_seconds = 1.25;
      EXPECT_EQ(decoded(file, request).samples.numel(), static_cast<int64_t>(1.25 * rate)) << "exactly as long";
      request.max_seconds = 1.249;
      EXPECT_NE(refusal(file, request).find("max_duration (1.249 s)"), std::string::npos);
      request.duration_seconds = 0.5;
      EXPECT_EQ(decoded(file, request).samples.numel(), static_cast<int64_t>(0.5 * rate))
          << "a given part is not judged";
      request.duration_seconds = 0.0;
    }
  }
}

// A long recording read in parts gives what it gives from memory, bit for bit; and a file that ends early is refused.
TEST(Audio, FromAFileIsTheSameAsFromMemory) {
  const auto samples = tone(700000, 2);
  const std::string path = testing::TempDir() + "audio_in_parts_" + std::to_string(::getpid());
  std::string noted = encode_wav(samples, 16000, 2);
  noted.insert(12, std::string("LIST\x00\x00\x10\x00", 8) + std::string(size_t{1} << 20, 'n'));
  const std::string files[] = {encode_wav(samples, 16000, 2), noted, encode_flac(samples, 16000, 2),
                               encode_flac(samples, 16000, 2, {.known_length = false})};
  for (const std::string& file : files) {
    std::ofstream(path, std::ios::binary) << "before" << file << "behind";
    const DataFile stored = open_user_file(path);
    for (const double offset : {0.0, 30.25}) {
      for (const double duration : {0.0, 5.5}) {
        for (const bool mono : {true, false}) {
          AudioRequest request{.offset_seconds = offset, .duration_seconds = duration, .mono = mono};
          const Audio memory = decoded(file, request);
          auto result = decode_audio(AudioInput(stored, 6, file.size()), "x", request);
          ASSERT_TRUE(std::holds_alternative<Audio>(result)) << std::get<BadSample>(result).reason;
          const Array& parts = std::get<Audio>(result).samples;
          ASSERT_EQ(parts.shape(), memory.samples.shape());
          EXPECT_EQ(std::memcmp(parts.data(), memory.samples.data(), parts.num_bytes()), 0);
        }
      }
    }
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(file.size() / 2)), 0);
    const auto cut = decode_audio(AudioInput(stored, 6, file.size()), "x", {});
    ASSERT_TRUE(std::holds_alternative<BadSample>(cut));
    EXPECT_NE(std::get<BadSample>(cut).reason.find("could not be read to its end"), std::string::npos)
        << std::get<BadSample>(cut).reason;
  }
  ::unlink(path.c_str());
}

TEST(Audio, WhatResamplingMakesOfAClipIsLimitedToo) {
  const std::vector<float> samples(3'000'000, 0.25f);  // 63 times as many at 16 kHz: 750 MB
  AudioRequest request;
  request.target_rate = 16000;
  const std::string files[] = {encode_wav(samples, 255), encode_flac(samples, 255),
                               encode_flac(samples, 255, 1, {.known_length = false})};
  for (const std::string& file : files) {
    const ItemMemory memory(nullptr);  // as in a loader: what is charged piece by piece adds up
    EXPECT_NE(refusal(file, request).find("max_buffer_bytes"), std::string::npos);
  }
}

TEST(Audio, CutsAtOffsetAndDuration) {
  const auto samples = tone(160000);
  for (const std::string& file : {encode_wav(samples, 16000), encode_flac(samples, 16000)}) {
    const Audio whole = decoded(file);
    for (const auto& [offset, duration] :
         std::vector<std::pair<double, double>>{{0, 1}, {0.5, 0.25}, {9.99, 5}, {3.00001, 0}, {7.3, 2.7}}) {
      AudioRequest request;
      request.offset_seconds = offset;
      request.duration_seconds = duration;
      const Audio part = decoded(file, request);
      const auto first = static_cast<size_t>(std::llround(offset * 16000));
      const size_t wish = duration > 0 ? static_cast<size_t>(std::llround(duration * 16000)) : size_t{160000};
      const size_t count = std::min(wish, 160000 - first);
      ASSERT_EQ(part.samples.numel(), static_cast<int64_t>(count));
      EXPECT_EQ(std::memcmp(part.samples.data(), whole.samples.as<float>().data() + first, count * 4), 0);
    }
    AudioRequest request;
    request.offset_seconds = 10.0;
    EXPECT_NE(refusal(file, request).find("behind its end"), std::string::npos);
    request.offset_seconds = std::nan("");
    EXPECT_NE(refusal(file, request).find("not a usable number"), std::string::npos);
    request.offset_seconds = -1;
    EXPECT_NE(refusal(file, request).find("not a usable number"), std::string::npos);
  }
}

TEST(Audio, ProbesFromTheHeadAlone) {
  const auto samples = tone(160000, 2);
  for (const std::string& file : {encode_wav(samples, 44100, 2), encode_flac(samples, 44100, 2)}) {
    const auto info = std::get<AudioInfo>(probe_audio(bytes_of(file).first(1024), file.size(), "x"));
    EXPECT_EQ(info.rate, 44100);
    EXPECT_EQ(info.channels, 2);
    EXPECT_EQ(info.frames, 160000);
    EXPECT_NEAR(info.seconds(), 3.628, 1e-3);
  }
}

TEST(Audio, ResamplesToTheTargetRate) {
  const auto samples = tone(44100, 1, 440.0, 44100.0);
  AudioRequest request;
  request.target_rate = 16000;
  const Audio audio = decoded(encode_flac(samples, 44100), request);
  EXPECT_EQ(audio.rate, 16000);
  EXPECT_EQ(audio.source_rate, 44100);
  ASSERT_EQ(audio.samples.numel(), 16000);
  const auto want = tone(16000);
  for (size_t i = 500; i < 15500; ++i) EXPECT_NEAR(audio.samples.as<float>()[i], want[i], 1e-4f);
  request.allow_resample = false;
  EXPECT_NE(refusal(encode_flac(samples, 44100), request).find("44100 Hz, expected 16000"), std::string::npos);
}

TEST(BadAudio, EachKindHasItsSentence) {
  const auto samples = tone(8000);
  const std::string wav = encode_wav(samples, 16000), flac = encode_flac(samples, 16000);
  EXPECT_EQ(refusal(""), "it has 0 bytes");
  EXPECT_NE(refusal("hello, I am a text").find("allowed formats are WAV, FLAC, MP3, Ogg"), std::string::npos);
  EXPECT_NE(refusal(wav.substr(0, wav.size() / 2)).find("truncated"), std::string::npos);
  EXPECT_NE(refusal(flac.substr(0, flac.size() / 2)).find("truncated"), std::string::npos);
  EXPECT_NE(refusal(wav.substr(0, 20)).find("truncated"), std::string::npos);
  EXPECT_NE(refusal(flac.substr(0, 20)).find("truncated"), std::string::npos);
  std::string flipped = flac;
  flipped[flac.size() / 2] = static_cast<char>(flipped[flac.size() / 2] ^ 0x10);
  EXPECT_NE(refusal(flipped).find("damaged"), std::string::npos);
  EXPECT_EQ(decoded(flac).samples.numel(), 8000) << "the thread's decoder recovers after a refusal";

  auto with_nan = samples;
  with_nan[77] = std::numeric_limits<float>::quiet_NaN();
  with_nan[78] = std::numeric_limits<float>::infinity();
  for (const WavEncoding encoding : {WavEncoding::Float32, WavEncoding::Float64})
    EXPECT_NE(refusal(encode_wav(with_nan, 16000, 1, {encoding, false})).find("2 samples that are NaN"),
              std::string::npos);
  AudioRequest resampled;
  resampled.target_rate = 8000;
  EXPECT_NE(refusal(encode_wav(with_nan, 16000, 1, {WavEncoding::Float32, false}), resampled).find("NaN"),
            std::string::npos);
  EXPECT_NE(refusal(encode_wav({}, 16000)).find("no audio"), std::string::npos);
}

TEST(BadAudio, AbsurdHeadersAreRefusedBeforeAllocating) {
  const auto samples = tone(8000);
  std::string wav = encode_wav(samples, 16000);
  wav[22] = wav[23] = static_cast<char>(0xFF);  // channels
  EXPECT_NE(refusal(wav).find("block size"), std::string::npos);
  wav = encode_wav(samples, 16000);
  std::memset(wav.data() + 24, 0xFF, 4);  // rate
  EXPECT_NE(refusal(wav).find("rate"), std::string::npos);
  wav = encode_wav(samples, 16000);
  wav[20] = 7;  // mu-law has 8 bits
  EXPECT_NE(refusal(wav).find("16-bit mu-law"), std::string::npos);
  wav[20] = 0x11;
  EXPECT_NE(refusal(wav).find("IMA ADPCM"), std::string::npos);
  std::string flac = encode_flac(samples, 16000);
  flac[21] = static_cast<char>(flac[21] | 0x0F);  // 2^35 frames
  EXPECT_NE(refusal(flac).find("cannot hold them"), std::string::npos);
  AudioRequest small;
  small.max_frames = 1000;
  EXPECT_NE(refusal(encode_wav(samples, 16000), small).find("limit of 1000"), std::string::npos);
}

TEST(Wav, OtherChunksPaddingAndOpenLengths) {
  const auto samples = tone(100);
  const std::string plain = encode_wav(samples, 16000);
  std::string with_list = plain;
  with_list.insert(12, std::string("LIST\x05\0\0\0hello\0", 14));  // odd size, padded
  EXPECT_EQ(decoded(with_list).samples.numel(), 100);
  std::string streamed = plain;
  std::memset(streamed.data() + 40, 0xFF, 4);
  EXPECT_EQ(decoded(streamed).samples.numel(), 100);

  std::string rf64 = plain;
  std::memcpy(rf64.data(), "RF64", 4);
  std::string ds64("ds64\x1c\0\0\0", 8);
  const uint64_t sizes[3] = {0, 200, 100};
  ds64.append(reinterpret_cast<const char*>(sizes), sizeof(sizes));
  ds64.append(4, '\0');
  std::memset(rf64.data() + 40, 0xFF, 4);
  rf64.insert(12, ds64);
  rf64 += "trailing";
  EXPECT_EQ(decoded(rf64).samples.numel(), 100);
}

TEST(Audio, ThreadsDoNotDisturbEachOther) {
  std::vector<std::string> files;
  for (int i = 0; i < 4; ++i) files.push_back(encode_flac(tone(3000 + 100 * i), 16000));
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto which = static_cast<size_t>((i + t) % 4);
        auto result = decode_audio(bytes_of(files[which]), "x", {});
        if (!std::holds_alternative<Audio>(result) ||
            std::get<Audio>(result).samples.numel() != 3000 + 100 * static_cast<int64_t>(which))
          ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace redline::data
