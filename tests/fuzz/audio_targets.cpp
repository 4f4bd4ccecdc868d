#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "data/audio/resample.h"
#include "data/codecs/audio.h"
#include "data/codecs/audio_writer.h"
#include "target.h"

namespace redline::fuzz {

namespace {

using namespace redline::data;

constexpr int64_t kMaxFrames = int64_t{1} << 20;

std::vector<float> chirp(int64_t frames, int channels) {
  std::vector<float> samples;
  for (int64_t i = 0; i < frames; ++i)
    for (int c = 0; c < channels; ++c)
      samples.push_back(0.5f * std::sin(1e-5f * static_cast<float>(i * i) + static_cast<float>(c)));
  return samples;
}

void check_audio(const Audio& audio) {
  require(audio.samples.numel() > 0 && audio.samples.numel() <= kMaxFrames, "audio stays within its limit");
  require(audio.rate > 0, "audio has a rate");
  for (const float sample : audio.samples.as<float>()) require(std::isfinite(sample), "audio is finite");
}

// Another rate than the file's. A mutation makes a new rate of every other file, and a filter bank of hundreds of
// phases costs a hundred files' time and runs the same code: only the rates of the seeds get one (it is kept), others
// are doubled. Every pair of usual rates is the target `resample`.
int32_t other_rate(int32_t rate) {
  if (rate == 44100 || rate == 22050 || 16000 / std::gcd(rate, 16000) <= 4) return 16000;
  return rate <= 192'000 ? 2 * rate : rate;
}

// Every way a file can be asked for. Accepted when the plain request is.
bool decode_all_ways(std::span<const std::byte> bytes) {
  AudioRequest plain;
  plain.max_frames = kMaxFrames;
  const auto result = decode_audio(bytes, "fuzz", plain);
  const bool accepted = std::holds_alternative<Audio>(result);
  if (accepted) check_audio(std::get<Audio>(result));
  const auto info = probe_audio(bytes.first(std::min<size_t>(bytes.size(), 200)), bytes.size(), "fuzz");
  if (accepted) require(bytes.size() > 200 || std::holds_alternative<AudioInfo>(info), "what decodes can be probed");
  AudioRequest part = plain;
  part.offset_seconds = 0.02;
  part.duration_seconds = 0.03;
  part.target_rate = accepted ? other_rate(std::get<Audio>(result).rate) : 16000;
  const auto cut = decode_audio(bytes, "fuzz", part);
  if (const auto* audio = std::get_if<Audio>(&cut)) {
    check_audio(*audio);
    require(audio->samples.numel() <= part.target_rate * 3 / 100 + part.target_rate / audio->source_rate + 2,
            "a cut is as long as asked, to a frame of the file");
  }
  AudioRequest resampled = plain;
  resampled.target_rate = part.target_rate;
  const auto at_rate = decode_audio(bytes, "fuzz", resampled);
  if (const auto* audio = std::get_if<Audio>(&at_rate)) {
    check_audio(*audio);
    require(audio->rate == resampled.target_rate, "audio comes at the rate asked for");
  }
  AudioRequest all = plain;
  all.mono = false;
  const auto channels = decode_audio(bytes, "fuzz", all);
  if (const auto* audio = std::get_if<Audio>(&channels)) check_audio(*audio);
  return accepted;
}

std::vector<std::string> wav_seeds() {
  std::vector<std::string> seeds;
  for (const auto encoding : {WavEncoding::Pcm8, WavEncoding::Pcm16, WavEncoding::Pcm24, WavEncoding::Pcm32,
                              WavEncoding::Float32, WavEncoding::Float64}) {
    seeds.push_back(encode_wav(chirp(48, 1), 8000, 1, {encoding, false}));
    seeds.push_back(encode_wav(chirp(32, 2), 44100, 2, {encoding, true}));
  }
  std::string listed = seeds[2];
  listed.insert(12, std::string("LIST\x05\0\0\0hello\0", 14));
  seeds.push_back(listed);
  return seeds;
}

std::vector<std::string> flac_seeds() {
  return {encode_flac(chirp(600, 1), 16000), encode_flac(chirp(400, 2), 44100, 2),
          encode_flac(chirp(300, 1), 8000, 1, {.bits = 24}),
          encode_flac(chirp(500, 1), 22050, 1, {.known_length = false})};
}

// Rates and samples from the bytes themselves. Filter banks are kept: making one costs more than using it.
bool run_resampler(std::span<const std::byte> bytes) {
  static constexpr int32_t kRates[] = {8000, 11025, 16000, 16100, 44100, 48000};
  static std::map<std::pair<int32_t, int32_t>, Resampler> banks;
  if (bytes.size() < 2) return false;
  const int32_t in = kRates[static_cast<size_t>(bytes[0]) % 6], out = kRates[static_cast<size_t>(bytes[1]) % 6];
  const auto tail = bytes.subspan(2);
  std::vector<float> samples(std::min<size_t>(tail.size(), 64));
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<float>(static_cast<int8_t>(tail[i])) / 128.0f;
  const Resampler& resampler = banks.try_emplace({in, out}, in, out).first->second;
  std::vector<float> result(static_cast<size_t>(resampler.output_length(static_cast<int64_t>(samples.size()))));
  resampler.run(samples, result);
  for (const float value : result) require(std::abs(value) < 8.0f, "a filter of gain one stays bounded");
  return true;
}

std::vector<std::string> resample_seeds() {
  std::string seed("\x02\x04", 2);
  for (int i = 0; i < 60; ++i) seed += static_cast<char>(i * 7);
  return {seed};
}

}  // namespace

std::vector<Target> audio_targets() {
  return {{"wav", decode_all_ways, wav_seeds, {}},
          {"flac", decode_all_ways, flac_seeds, {}},
          {"resample", run_resampler, resample_seeds, {}}};
}

}  // namespace redline::fuzz
