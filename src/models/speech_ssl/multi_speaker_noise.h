// NeMo's MultiSpeakerNoiseAugmentation (nemo/collections/asr/modules/ssl_modules/augmentation.py, version 3.0.0): part
// of a clip is overlaid with its noise clip, or with other speakers of the same group. Acts on the plan's groups before
// any split, and every draw is keyed by the sample, so splitting a batch never changes a sample.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/philox.h"
#include "data/dataset_config.h"
#include "data/transform.h"

namespace redline::models::speech {

class MultiSpeakerNoise : public data::GroupTransform {
 public:
  // `keep_noise`: also leave what was added under "noise" (a batch that wants it), else only "noisy_audio".
  MultiSpeakerNoise(const data::MultiSpeakerNoiseConfig& config, bool keep_noise);
  void apply(std::span<data::Sample> group, const data::DrawKey& key) const override;
  std::string fingerprint() const override;

 private:
  struct Mixture;
  Mixture draw(std::span<const data::Array> clean, size_t self, const data::Array& noise, KeyedStream& stream) const;
  void leave(data::Sample& sample, const data::Array& clean, const data::DrawKey& key) const;
  void add(data::Sample& sample, const data::Array& clean, const Mixture& mixture) const;

  data::MultiSpeakerNoiseConfig config_;
  bool keep_noise_;
};

// How many of `total` draws fall into each of `parts` equally likely cells: exact up to 4,096 draws, beyond that by the
// normal approximation of the binomial (the difference is far below one audio sample in a thousand).
std::vector<int64_t> split_evenly_at_random(int64_t total, int parts, KeyedStream& stream);

}  // namespace redline::models::speech
