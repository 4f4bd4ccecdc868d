// What happens to one clip between decoding and collation: short clips made longer, gain, and a noise clip beside it,
// as NeMo's self-supervised data set does it (nemo/collections/asr/data/ssl_dataset.py, version 3.0.0).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/audio/manifest_source.h"
#include "data/cache/feature_cache.h"
#include "data/transform.h"

namespace redline::data {

// Numbers of the draws' purposes in this room; part of every key, never reused.
enum class AudioDraw : uint64_t {
  Gain = 0x617564696f01,
  Noise = 0x617564696f02,
  WhiteNoise = 0x617564696f03,
  Mix = 0x617564696f04
};

// Clips shorter than `min_seconds` are repeated and cut, or followed by zeros. An empty clip cannot be used.
class MinimumLength : public SampleTransform {
 public:
  MinimumLength(double min_seconds, int32_t sample_rate, bool repeat);
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override;
  bool random() const override { return false; }

 private:
  int64_t min_samples_;
  bool repeat_;
};

// Multiplies by 10^(g/20) with g uniform in [min_db, max_db].
class RandomGain : public SampleTransform {
 public:
  RandomGain(double min_db, double max_db) : min_db_(min_db), max_db_(max_db) {}
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override;
  bool random() const override { return true; }

 private:
  double min_db_, max_db_;
};

// The clips of a noise manifest, decoded once and kept up to a limit.
class NoiseBank {
 public:
  NoiseBank(const std::vector<std::filesystem::path>& manifests, const ManifestOptions& options, int64_t cache_bytes);
  int64_t size() const { return source_.size(); }
  double seconds(int64_t index) const { return source_.length(index); }
  // Samples [begin, begin + count) of the clip, fewer at its end; nullopt when it cannot be read. The same whether it
  // was cached or not.
  std::optional<std::vector<float>> window(int64_t index, double begin_seconds, int64_t count) const;
  uint64_t fingerprint() const { return source_.fingerprint(); }

 private:
  ManifestSource source_;
  int32_t sample_rate_;
  std::unique_ptr<FeatureCache> cache_;
};

// Puts a drawn noise clip beside the audio: "noise", no longer than the audio. Without a bank: zeros of the audio's
// length.
class NoiseSampler : public SampleTransform {
 public:
  // `quirks`: reject windows whose samples do not sum to more than 0, as the reference does, instead of silent ones.
  NoiseSampler(std::shared_ptr<const NoiseBank> bank, int32_t sample_rate, bool quirks);
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override;
  bool random() const override { return true; }

 private:
  std::optional<std::vector<float>> draw(int64_t length, const Sample& sample, const DrawKey& key) const;

  std::shared_ptr<const NoiseBank> bank_;
  int32_t sample_rate_;
  bool quirks_;
};

// "noisy_audio" = "audio" + "noise", of the audio's length: what happens without a batch_augmentor.
class AddNoise : public SampleTransform {
 public:
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override { return "add noise"; }
  bool random() const override { return true; }
};

}  // namespace redline::data
