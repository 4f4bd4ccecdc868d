// A noise clip beside every clip, as NeMo's self-supervised data set draws it
// (nemo/collections/asr/data/ssl_dataset.py, version 3.0.0).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/clip_bank.h"
#include "data/transform.h"

namespace redline::models::speech {

// Numbers of the draws' purposes; part of every key, never reused (0x617564696f01 is the gain's).
enum class NoiseDraw : uint64_t { Noise = 0x617564696f02, WhiteNoise = 0x617564696f03, Mix = 0x617564696f04 };

// Puts a drawn noise clip beside the audio: "noise", no longer than the audio. Without a bank: zeros of the audio's
// length.
class NoiseSampler : public data::SampleTransform {
 public:
  // `quirks`: reject windows whose samples do not sum to more than 0, as the reference does, instead of silent ones.
  NoiseSampler(std::shared_ptr<const data::ClipBank> bank, int32_t sample_rate, bool quirks);
  void apply(data::Sample& sample, const data::DrawKey& key) const override;
  std::string fingerprint() const override;
  bool random() const override { return true; }

 private:
  std::optional<std::vector<float>> read(int64_t index, double begin_seconds, int64_t length) const;
  std::optional<std::vector<float>> draw(int64_t length, const data::Sample& sample, const data::DrawKey& key) const;

  std::shared_ptr<const data::ClipBank> bank_;
  int32_t sample_rate_;
  bool quirks_;
};

// "noisy_audio" = "audio" + "noise", of the audio's length: what happens without a batch_augmentor.
class AddNoise : public data::SampleTransform {
 public:
  void apply(data::Sample& sample, const data::DrawKey& key) const override;
  std::string fingerprint() const override { return "add noise"; }
  bool random() const override { return true; }
};

}  // namespace redline::models::speech
