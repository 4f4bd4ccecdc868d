#include "data/audio/audio_transforms.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/philox.h"
#include "core/strings.h"

namespace redline::data {

namespace {

constexpr uint64_t kGainDraw = 0x617564696f01;  // part of every key of a gain

const Array& audio_of(const Sample& sample) {
  const Array* audio = sample.find("audio");
  if (audio == nullptr || audio->dtype() != Dtype::F32) throw DataError("There is no audio in the sample.");
  return *audio;
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
  KeyedStream stream(key.seed, key.epoch, static_cast<uint64_t>(sample.id), kGainDraw);
  const float gain = static_cast<float>(std::pow(10.0, stream.uniform(min_db_, max_db_) / 20.0));
  Array louder = Array::empty(Dtype::F32, audio.shape());
  std::transform(audio.as<float>().begin(), audio.as<float>().end(), louder.as<float>().begin(),
                 [gain](float x) { return gain * x; });
  sample.set("audio", std::move(louder));
}

std::string RandomGain::fingerprint() const { return "gain " + format_double(min_db_) + " " + format_double(max_db_); }

}  // namespace redline::data
