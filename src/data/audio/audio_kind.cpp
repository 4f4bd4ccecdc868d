#include <cmath>

#include "core/error.h"
#include "core/strings.h"
#include "data/audio/audio_transforms.h"
#include "data/audio/manifest_source.h"
#include "data/audio/tarred_source.h"
#include "data/files/open_parts.h"
#include "data/images/web_dataset_source.h"
#include "data/kinds.h"

namespace redline::data {

namespace {

AudioRequest audio_request(const DatasetConfig& config) {
  AudioRequest audio;
  audio.target_rate = config.sample_rate;
  audio.max_seconds = config.max_duration.value_or(0.0);
  if (config.channel_selector != "average") {
    const auto channel = parse_int(config.channel_selector);
    if (!channel || *channel < 0 || *channel > 1024)
      throw ConfigError("channel_selector must be 'average' or a channel number from 0.");
    audio.channel = static_cast<int32_t>(*channel);
  }
  return audio;
}

OpenedData open_manifests(const DatasetConfig& config) {
  const NameLists manifests = parts_of(config.manifest_filepath, "manifest_filepath", config.is_concat);
  std::vector<std::shared_ptr<Source>> parts;
  if (config.is_tarred) {
    const NameLists tars = parts_of(config.tarred_audio_filepaths, "tarred_audio_filepaths", config.is_concat);
    if (tars.size() != manifests.size()) {
      throw ConfigError("tarred_audio_filepaths has " + std::to_string(tars.size()) +
                        " parts but manifest_filepath has " + std::to_string(manifests.size()) + ".");
    }
    for (size_t p = 0; p < manifests.size(); ++p)
      parts.push_back(std::make_shared<TarredSource>(as_paths(manifests[p]), as_paths(tars[p]), audio_request(config),
                                                     config.max_missing_fraction));
  } else {
    const ManifestOptions options{audio_request(config), config.allow_absolute.value(), config.data_root};
    for (const auto& names : manifests) parts.push_back(std::make_shared<ManifestSource>(as_paths(names), options));
  }
  return join_parts(std::move(parts), config.is_tarred);
}

OpenedData open_web_tars(const DatasetConfig& config) {
  const NameLists lists = parts_of(config.path, "path", config.is_concat);
  if (!all_tars(lists))
    throw ConfigError("path '" + printable(lists[0][0]) +
                      "' is for Parquet files, pictures or tars; audio files are named by manifest_filepath: a file "
                      "with a line {\"audio_filepath\": \"clip.wav\"} for each clip.");
  std::vector<std::shared_ptr<Source>> parts;
  for (const auto& names : lists)
    parts.push_back(std::make_shared<WebDatasetSource>(as_paths(names), WebKind::Audio, audio_request(config)));
  return join_parts(std::move(parts), true);
}

}  // namespace

void AudioKind::refuse_foreign_keys(const DatasetConfig& config) const {
  refuse(config.max_sequence_length.has_value(), "max_sequence_length", "sequences (use max_duration)");
  refuse(config.batch_tokens.has_value(), "batch_tokens", "sequences (use batch_duration)");
  refuse(!config.columns.empty(), "columns", "Parquet data");
  refuse(config.batch_augmentor && !mixes_noise(), "batch_augmentor", "a task that mixes noise (give its job)");
  refuse(!config.noise_manifest.is_null() && !mixes_noise(), "noise_manifest",
         "a task that mixes noise (give its job)");
}

OpenedData AudioKind::open_files(const DatasetConfig& config) const {
  OpenedData data = config.manifest_filepath.is_null() ? open_web_tars(config) : open_manifests(config);
  for (const auto& names : name_lists(config.noise_manifest, "noise_manifest"))
    data.noise_manifests.insert(data.noise_manifests.end(), names.begin(), names.end());
  return data;
}

Transforms AudioKind::transforms(const DatasetConfig& config, const TaskNeeds& needs, const OpenedData&) const {
  Transforms list;
  if (config.min_audio_len_secs > 0.0) {
    list.push_back(std::make_shared<MinimumLength>(config.min_audio_len_secs, config.sample_rate,
                                                   config.pad_audio_mode == "repeat"));
  }
  if (config.min_gain_db != 0.0 || config.max_gain_db != 0.0)
    list.push_back(std::make_shared<RandomGain>(config.min_gain_db, config.max_gain_db));
  for (const auto& own : {needs.raw_transform, needs.sample_transform})
    if (own != nullptr) list.push_back(own);
  return list;
}

CollateSpec AudioKind::collate(const DatasetConfig&, const Source&) const {
  CollateSpec spec;
  spec.fields.push_back({"audio", 0.0, 1, "audio_len", false});
  spec.counted_field = "audio";
  return spec;
}

std::optional<int64_t> AudioKind::longest(const DatasetConfig& config) const {
  return static_cast<int64_t>(std::ceil(config.max_duration.value_or(0.0) * config.sample_rate));
}

std::shared_ptr<const Kind> audio_kind() {
  static const auto kind = std::make_shared<const AudioKind>();
  return kind;
}

}  // namespace redline::data
