#include "models/speech_ssl/speech_kind.h"

#include "models/speech_ssl/multi_speaker_noise.h"
#include "models/speech_ssl/noise.h"

namespace redline::models::speech {

namespace {

bool wants(const data::CollateSpec& spec, std::string_view name) {
  for (const auto& field : spec.fields)
    if (field.name == name) return true;
  return false;
}

bool wants_noise(const data::CollateSpec& spec) { return wants(spec, "noise") || wants(spec, "noisy_audio"); }

class NoisySpeechKind : public data::AudioKind {
 public:
  data::Transforms transforms(const data::DatasetConfig& config, const data::TaskNeeds& needs,
                              const data::OpenedData& data) const override {
    data::Transforms list = AudioKind::transforms(config, needs, data);
    if (!wants_noise(needs.collate)) return list;
    std::shared_ptr<const data::ClipBank> bank;
    if (!data.noise_manifests.empty())
      bank = std::make_shared<data::ClipBank>(data.noise_manifests, config, config.noise_cache_bytes);
    const bool quirks = config.batch_augmentor && config.batch_augmentor->reference_quirks;
    list.push_back(std::make_shared<NoiseSampler>(bank, config.sample_rate, quirks));
    if (!config.batch_augmentor) list.push_back(std::make_shared<AddNoise>());
    return list;
  }

  std::shared_ptr<const data::GroupTransform> group_transform(const data::DatasetConfig& config,
                                                              const data::TaskNeeds& needs) const override {
    if (!config.batch_augmentor || !wants_noise(needs.collate)) return needs.group_transform;
    return std::make_shared<MultiSpeakerNoise>(*config.batch_augmentor, wants(needs.collate, "noise"));
  }

 protected:
  bool mixes_noise() const override { return true; }
};

}  // namespace

std::shared_ptr<const data::Kind> noisy_speech_kind() {
  static const auto kind = std::make_shared<const NoisySpeechKind>();
  return kind;
}

}  // namespace redline::models::speech
