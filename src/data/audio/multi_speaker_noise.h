// NeMo's MultiSpeakerNoiseAugmentation (nemo/collections/asr/modules/ssl_modules/augmentation.py, version 3.0.0): part
// of a clip is overlaid with its noise clip, or with other speakers of the same group. Acts on the plan's groups before
// any split, and every draw is keyed by the sample, so splitting a batch never changes a sample.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/fields.h"
#include "core/philox.h"
#include "data/transform.h"

namespace redline::data {

struct MultiSpeakerNoiseConfig {
  double prob = 0.0, noise_ratio = 0.0;
  double min_r_speech = -5.0, max_r_speech = 5.0, min_r_noise = -5.0, max_r_noise = 20.0;
  double min_mix_rate = 0.0, max_mix_rate = 1.0;
  int min_num_segments = 1, max_num_segments = 5, min_num_speakers = 1, max_num_speakers = 4;
  bool reference_quirks = false;

  static config::Table<MultiSpeakerNoiseConfig> fields();
  // Throws ConfigError where a minimum is above its maximum.
  void check() const;
};

class MultiSpeakerNoise : public GroupTransform {
 public:
  // `keep_noise`: also leave what was added under "noise" (a batch that wants it), else only "noisy_audio".
  MultiSpeakerNoise(const MultiSpeakerNoiseConfig& config, bool keep_noise);
  void apply(std::span<Sample> group, const DrawKey& key) const override;
  std::string fingerprint() const override;

 private:
  struct Mixture;
  Mixture draw(std::span<const Array> clean, size_t self, const Array& noise, KeyedStream& stream) const;
  void leave(Sample& sample, const Array& clean, const DrawKey& key) const;
  void add(Sample& sample, const Array& clean, const Mixture& mixture) const;

  MultiSpeakerNoiseConfig config_;
  bool keep_noise_;
};

// How many of `total` draws fall into each of `parts` equally likely cells: exact up to 4,096 draws, beyond that by the
// normal approximation of the binomial (the difference is far below one audio sample in a thousand).
std::vector<int64_t> split_evenly_at_random(int64_t total, int parts, KeyedStream& stream);

}  // namespace redline::data
