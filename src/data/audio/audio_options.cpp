// The rows of audio, NeMo's names where NeMo has one.
#include "core/error.h"
#include "core/strings.h"
#include "data/dataset_config.h"

namespace redline::data {

config::Table<MultiSpeakerNoiseConfig> MultiSpeakerNoiseConfig::fields() {
  using C = MultiSpeakerNoiseConfig;
  constexpr auto kTrains = config::Effect::Optimisation;
  config::Table<C> t;
  t.about("Overlays part of a clip with noise or with other speakers of its batch.");
  t.target("nemo.collections.asr.modules.ssl_modules.MultiSpeakerNoiseAugmentation");
  t.target("MultiSpeakerNoiseAugmentation");
  t.add("prob", &C::prob, "Chance that a clip is overlaid at all.").range(0, 1).effect(kTrains);
  t.add("noise_ratio", &C::noise_ratio, "Chance that the overlay is noise and not speech.").range(0, 1).effect(kTrains);
  t.add("min_r_speech", &C::min_r_speech, "Lowest energy ratio of the clip to overlaid speech.")
      .unit("dB")
      .effect(kTrains);
  t.add("max_r_speech", &C::max_r_speech, "Highest energy ratio of the clip to overlaid speech.")
      .unit("dB")
      .effect(kTrains);
  t.add("min_r_noise", &C::min_r_noise, "Lowest energy ratio of the clip to overlaid noise.")
      .unit("dB")
      .effect(kTrains);
  t.add("max_r_noise", &C::max_r_noise, "Highest energy ratio of the clip to overlaid noise.")
      .unit("dB")
      .effect(kTrains);
  t.add("min_mix_rate", &C::min_mix_rate, "Smallest share of the clip that is overlaid.").range(0, 1).effect(kTrains);
  t.add("max_mix_rate", &C::max_mix_rate, "Largest share of the clip that is overlaid.").range(0, 1).effect(kTrains);
  t.add("min_num_segments", &C::min_num_segments, "Fewest pieces the overlay comes in.").at_least(1).effect(kTrains);
  t.add("max_num_segments", &C::max_num_segments, "Most pieces the overlay comes in.").at_least(1).effect(kTrains);
  t.add("min_num_speakers", &C::min_num_speakers, "Fewest other speakers in an overlay of speech.")
      .at_least(1)
      .effect(kTrains);
  t.add("max_num_speakers", &C::max_num_speakers, "Most other speakers in an overlay of speech.")
      .at_least(1)
      .effect(kTrains);
  t.add("reference_quirks", &C::reference_quirks,
        "As NeMo does it: a clip that is not overlaid still gets its raw noise clip added, and counts as long as that.")
      .effect(kTrains);
  return t;
}

void MultiSpeakerNoiseConfig::check() const {
  const auto require = [](double low, double high, const char* name) {
    if (low > high) {
      throw ConfigError(std::string("batch_augmentor: min_") + name + " (" + format_double(low) + ") is above max_" +
                        name + " (" + format_double(high) + ").");
    }
  };
  require(min_r_speech, max_r_speech, "r_speech");
  require(min_r_noise, max_r_noise, "r_noise");
  require(min_mix_rate, max_mix_rate, "mix_rate");
  require(min_num_segments, max_num_segments, "num_segments");
  require(min_num_speakers, max_num_speakers, "num_speakers");
}

void AudioOptions::add_rows(config::Table<DatasetConfig>& t) {
  using D = AudioOptions;
  using config::Effect;
  t.add("sample_rate", &D::sample_rate, "Audio is resampled to this rate.")
      .unit("Hz")
      .range(100, 1'000'000)
      .effect(Effect::Model);
  t.add("channel_selector", &D::channel_selector, "Channel of multi-channel files, from 0, or 'average'.")
      .effect(Effect::Optimisation);
  t.add("min_audio_len_secs", &D::min_audio_len_secs, "Shorter clips are made this long.")
      .unit("seconds")
      .at_least(0)
      .effect(Effect::Optimisation);
  t.add("pad_audio_mode", &D::pad_audio_mode, "How: by repeating them, or with zeros.")
      .choices({"repeat", "zero"})
      .effect(Effect::Optimisation);
  t.add("min_gain_db", &D::min_gain_db, "Lowest random gain.").unit("dB").effect(Effect::Optimisation);
  t.add("max_gain_db", &D::max_gain_db, "Highest random gain; equal to the lowest is a fixed gain, 0 and 0 none.")
      .unit("dB")
      .effect(Effect::Optimisation);
  t.group("batch_augmentor", &D::batch_augmentor,
          "Overlays part of a clip with noise or with other speakers of its batch.");
  t.add("noise_cache_bytes", &D::noise_cache_bytes, "Memory for decoded noise clips.")
      .unit("bytes")
      .at_least(0)
      .effect(Effect::Nothing);
}

void AudioOptions::check() const {
  if (min_gain_db > max_gain_db) throw ConfigError("min_gain_db is above max_gain_db.");
  if (batch_augmentor) batch_augmentor->check();
}

}  // namespace redline::data
