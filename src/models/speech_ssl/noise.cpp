#include "models/speech_ssl/noise.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/philox.h"
#include "core/strings.h"

namespace redline::models::speech {

namespace {

constexpr int kNoiseTrials = 20, kWindowTrials = 100;
constexpr int64_t kMinWhiteDb = -90, kMaxWhiteDb = -46;

const data::Array& audio_of(const data::Sample& sample) {
  const data::Array* audio = sample.find("audio");
  if (audio == nullptr || audio->dtype() != data::Dtype::F32) throw DataError("There is no audio in the sample.");
  return *audio;
}

KeyedStream stream_for(const data::DrawKey& key, int64_t sample, NoiseDraw draw) {
  return {key.seed, key.epoch, static_cast<uint64_t>(sample), static_cast<uint64_t>(draw)};
}

data::Array float_array(std::span<const float> values) {
  data::Array array = data::Array::empty(data::Dtype::F32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), array.as<float>().begin());
  return array;
}

}  // namespace

NoiseSampler::NoiseSampler(std::shared_ptr<const data::ClipBank> bank, int32_t sample_rate, bool quirks)
    : bank_(std::move(bank)), sample_rate_(sample_rate), quirks_(quirks) {}

std::optional<std::vector<float>> NoiseSampler::read(int64_t index, double begin_seconds, int64_t length) const {
  auto window = bank_->window(index, begin_seconds, length);
  if (auto* samples = std::get_if<std::vector<float>>(&window)) return std::move(*samples);
  const auto& bad = std::get<data::BadSample>(window);
  log_warning_once("Noise clip " + bad.name + " cannot be used: " + bad.reason + " Another is drawn in its place.");
  return std::nullopt;
}

std::optional<std::vector<float>> NoiseSampler::draw(int64_t length, const data::Sample& sample,
                                                     const data::DrawKey& key) const {
  KeyedStream stream = stream_for(key, sample.id, NoiseDraw::Noise);
  const double seconds = static_cast<double>(length) / sample_rate_;
  for (int trial = 0; trial < kNoiseTrials; ++trial) {
    const int64_t index = stream.uniform_int(0, bank_->size() - 1);
    const double room = bank_->seconds(index) - seconds;
    std::optional<std::vector<float>> window;
    double sum = 0.0, energy = 0.0;
    for (int retry = 0; retry < kWindowTrials; ++retry) {
      window = read(index, room > 0.0 ? stream.uniform(0.0, room) : 0.0, length);
      if (!window) break;
      sum = energy = 0.0;
      for (float x : *window) sum += x, energy += static_cast<double>(x) * x;
      if (!(room > 0.0) || (quirks_ ? sum > 0.0 : energy > 0.0)) break;
    }
    if (!window) continue;
    if (quirks_ ? sum == 0.0 : energy == 0.0) {  // silence: white noise instead
      KeyedStream white = stream_for(key, sample.id, NoiseDraw::WhiteNoise);
      const double level = std::pow(10.0, static_cast<double>(white.uniform_int(kMinWhiteDb, kMaxWhiteDb - 1)) / 20.0);
      for (float& x : *window) x += static_cast<float>(level * white.normal());
    }
    return window;
  }
  return std::nullopt;
}

void NoiseSampler::apply(data::Sample& sample, const data::DrawKey& key) const {
  const int64_t length = audio_of(sample).numel();
  std::optional<std::vector<float>> noise;
  if (bank_ != nullptr && length > 0) noise = draw(length, sample, key);
  sample.set("noise", noise ? float_array(*noise) : data::Array::zeros(data::Dtype::F32, {length}));
}

std::string NoiseSampler::fingerprint() const {
  return "noise " + (bank_ == nullptr ? "none" : hex64(bank_->fingerprint())) + (quirks_ ? " quirks" : "");
}

void AddNoise::apply(data::Sample& sample, const data::DrawKey&) const {
  const data::Array& audio = audio_of(sample);
  const auto noise = sample.find("noise")->as<float>();
  data::Array noisy = data::Array::empty(data::Dtype::F32, audio.shape());
  auto out = noisy.as<float>();
  std::copy(audio.as<float>().begin(), audio.as<float>().end(), out.begin());
  for (size_t i = 0; i < std::min(noise.size(), out.size()); ++i) out[i] += noise[i];
  sample.set("noisy_audio", std::move(noisy));
}

}  // namespace redline::models::speech
