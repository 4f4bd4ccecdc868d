#include "data/audio/audio_transforms.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"

namespace redline::data {

namespace {

constexpr double kWholeClipSeconds = 120.0;  // longer noise is decoded window by window
constexpr int kNoiseTrials = 20, kWindowTrials = 100;
constexpr int64_t kMinWhiteDb = -90, kMaxWhiteDb = -46;

const Array& audio_of(const Sample& sample) {
  const Array* audio = sample.find("audio");
  if (audio == nullptr || audio->dtype() != Dtype::F32) throw DataError("There is no audio in the sample.");
  return *audio;
}

KeyedStream stream_for(const DrawKey& key, int64_t sample, AudioDraw draw) {
  return {key.seed, key.epoch, static_cast<uint64_t>(sample), static_cast<uint64_t>(draw)};
}

Array float_array(std::span<const float> values) {
  Array array = Array::empty(Dtype::F32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), array.as<float>().begin());
  return array;
}

}  // namespace

MinimumLength::MinimumLength(double min_seconds, int32_t sample_rate, bool repeat)
    : min_samples_(static_cast<int64_t>(min_seconds * sample_rate)), repeat_(repeat) {}

void MinimumLength::apply(Sample& sample, const DrawKey&) const {
  const Array& audio = audio_of(sample);
  const int64_t length = audio.numel();
  if (length == 0) throw DataError("The clip has no samples.");
  if (length >= min_samples_) return;
  Array longer = Array::zeros(Dtype::F32, {min_samples_});
  for (int64_t at = 0; at < min_samples_; at += length) {
    const int64_t count = std::min(length, min_samples_ - at);
    std::memcpy(longer.as<float>().data() + at, audio.data(), static_cast<size_t>(count) * sizeof(float));
    if (!repeat_) break;
  }
  sample.set("audio", std::move(longer));
}

std::string MinimumLength::fingerprint() const {
  return "minimum length " + std::to_string(min_samples_) + (repeat_ ? " repeat" : " zero");
}

void RandomGain::apply(Sample& sample, const DrawKey& key) const {
  const Array& audio = audio_of(sample);
  const float gain =
      static_cast<float>(std::pow(10.0, stream_for(key, sample.id, AudioDraw::Gain).uniform(min_db_, max_db_) / 20.0));
  Array louder = Array::empty(Dtype::F32, audio.shape());
  std::transform(audio.as<float>().begin(), audio.as<float>().end(), louder.as<float>().begin(),
                 [gain](float x) { return gain * x; });
  sample.set("audio", std::move(louder));
}

std::string RandomGain::fingerprint() const { return "gain " + format_double(min_db_) + " " + format_double(max_db_); }

NoiseBank::NoiseBank(const std::vector<std::filesystem::path>& manifests, const ManifestOptions& options,
                     int64_t cache_bytes)
    : source_(manifests, options), sample_rate_(options.audio.sample_rate), cache_(make_memory_cache(cache_bytes)) {}

std::optional<std::vector<float>> NoiseBank::window(int64_t index, double begin_seconds, int64_t count) const {
  measure::StageClock::Slot slot;  // noise counts as part of the transform
  const double whole = seconds(index);
  const bool by_window =
      whole > kWholeClipSeconds;  // by the clip alone, so that the result does not depend on what is cached
  std::optional<Sample> clip;
  if (!by_window) clip = cache_->find(static_cast<uint64_t>(index));
  if (!clip) {
    ReadResult read = by_window
                          ? source_.read_window(index, begin_seconds, static_cast<double>(count) / sample_rate_, slot)
                          : source_.read(index, slot);
    if (std::holds_alternative<BadSample>(read)) {
      const auto& bad = std::get<BadSample>(read);
      log_warning_once("Noise clip " + bad.name + " cannot be used: " + bad.reason + " Another is drawn in its place.");
      return std::nullopt;
    }
    clip = std::move(std::get<Sample>(read));
    if (!by_window) cache_->insert(static_cast<uint64_t>(index), *clip);
  }
  const auto samples = clip->find("audio")->as<float>();
  const int64_t first = by_window ? 0 : static_cast<int64_t>(begin_seconds * sample_rate_);
  const int64_t begin = std::clamp<int64_t>(first, 0, static_cast<int64_t>(samples.size()));
  const int64_t end = std::min<int64_t>(begin + count, static_cast<int64_t>(samples.size()));
  return std::vector<float>(samples.begin() + begin, samples.begin() + end);
}

NoiseSampler::NoiseSampler(std::shared_ptr<const NoiseBank> bank, int32_t sample_rate, bool quirks)
    : bank_(std::move(bank)), sample_rate_(sample_rate), quirks_(quirks) {}

std::optional<std::vector<float>> NoiseSampler::draw(int64_t length, const Sample& sample, const DrawKey& key) const {
  KeyedStream stream = stream_for(key, sample.id, AudioDraw::Noise);
  const double seconds = static_cast<double>(length) / sample_rate_;
  for (int trial = 0; trial < kNoiseTrials; ++trial) {
    const int64_t index = stream.uniform_int(0, bank_->size() - 1);
    const double room = bank_->seconds(index) - seconds;
    std::optional<std::vector<float>> window;
    double sum = 0.0, energy = 0.0;
    for (int retry = 0; retry < kWindowTrials; ++retry) {
      window = bank_->window(index, room > 0.0 ? stream.uniform(0.0, room) : 0.0, length);
      if (!window) break;
      sum = energy = 0.0;
      for (float x : *window) sum += x, energy += static_cast<double>(x) * x;
      if (!(room > 0.0) || (quirks_ ? sum > 0.0 : energy > 0.0)) break;
    }
    if (!window) continue;
    if (quirks_ ? sum == 0.0 : energy == 0.0) {  // silence: white noise instead
      KeyedStream white = stream_for(key, sample.id, AudioDraw::WhiteNoise);
      const double level = std::pow(10.0, static_cast<double>(white.uniform_int(kMinWhiteDb, kMaxWhiteDb - 1)) / 20.0);
      for (float& x : *window) x += static_cast<float>(level * white.normal());
    }
    return window;
  }
  return std::nullopt;
}

void NoiseSampler::apply(Sample& sample, const DrawKey& key) const {
  const int64_t length = audio_of(sample).numel();
  std::optional<std::vector<float>> noise;
  if (bank_ != nullptr && length > 0) noise = draw(length, sample, key);
  sample.set("noise", noise ? float_array(*noise) : Array::zeros(Dtype::F32, {length}));
}

std::string NoiseSampler::fingerprint() const {
  return "noise " + (bank_ == nullptr ? "none" : hex64(bank_->fingerprint())) + (quirks_ ? " quirks" : "");
}

void AddNoise::apply(Sample& sample, const DrawKey&) const {
  const Array& audio = audio_of(sample);
  const auto noise = sample.find("noise")->as<float>();
  Array noisy = Array::empty(Dtype::F32, audio.shape());
  auto out = noisy.as<float>();
  std::copy(audio.as<float>().begin(), audio.as<float>().end(), out.begin());
  for (size_t i = 0; i < std::min(noise.size(), out.size()); ++i) out[i] += noise[i];
  sample.set("noisy_audio", std::move(noisy));
}

}  // namespace redline::data
