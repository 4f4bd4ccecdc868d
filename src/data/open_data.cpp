// Which source the options mean.
#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "data/audio/manifest_source.h"
#include "data/audio/tarred_source.h"
#include "data/build_loader.h"
#include "data/images/image_table.h"
#include "data/images/web_dataset_source.h"
#include "data/parquet/parquet_source.h"
#include "data/workers/concat_source.h"

namespace redline::data {

namespace {

using Paths = std::vector<std::filesystem::path>;
using NameLists = std::vector<std::vector<std::string>>;

Paths as_paths(const std::vector<std::string>& names) { return {names.begin(), names.end()}; }

AudioSettings audio_settings(const DatasetConfig& config) {
  AudioSettings audio;
  audio.sample_rate = config.sample_rate;
  audio.max_seconds = config.max_duration.value_or(0.0);
  if (config.channel_selector != "average") {
    const auto channel = parse_int(config.channel_selector);
    if (!channel || *channel < 0 || *channel > 1024)
      throw ConfigError("channel_selector must be 'average' or a channel number from 0.");
    audio.channel = static_cast<int32_t>(*channel);
  }
  return audio;
}

// One part per inner list; is_concat makes every manifest of a plain list a part.
NameLists parts_of(const config::Node& node, const char* key, bool concat) {
  NameLists lists = name_lists(node, key);
  if (!concat || lists.size() != 1) return lists;
  NameLists each;
  for (auto& name : lists[0]) each.push_back({std::move(name)});
  return each;
}

OpenedData join(std::vector<std::shared_ptr<Source>> parts) {
  OpenedData data;
  if (parts.size() == 1) {
    data.source = std::move(parts[0]);
    return data;
  }
  auto all = std::make_shared<ConcatSource>(std::move(parts));
  data.part_sizes = all->part_sizes();
  data.source = std::move(all);
  return data;
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
    for (size_t p = 0; p < manifests.size(); ++p) {
      parts.push_back(
          std::make_shared<TarredSource>(as_paths(manifests[p]), as_paths(tars[p]), audio_settings(config)));
    }
  } else {
    const ManifestOptions options{audio_settings(config), config.allow_absolute.value(), config.data_root};
    for (const auto& names : manifests) parts.push_back(std::make_shared<ManifestSource>(as_paths(names), options));
  }
  OpenedData data = join(std::move(parts));
  data.tarred = config.is_tarred;
  return data;
}

std::shared_ptr<Source> open_parquet(const DatasetConfig& config, const std::string& path) {
  ParquetOptions options;
  options.path = path;
  options.columns = config.columns;
  options.length_column = config.length_column;
  options.max_buffer_bytes = static_cast<uint64_t>(config.max_buffer_bytes);
  return std::make_shared<ParquetSource>(options);
}

OpenedData open_path(const DatasetConfig& config, const TaskNeeds& needs) {
  const NameLists lists = parts_of(config.path, "path", config.is_concat);
  const bool tars = std::all_of(lists.begin(), lists.end(), [](const auto& names) {
    return std::all_of(names.begin(), names.end(), [](const std::string& name) { return ends_with(name, ".tar"); });
  });
  std::vector<std::shared_ptr<Source>> parts;
  for (const auto& names : lists) {
    if (tars && needs.source_kind != "parquet") {
      const WebKind kind = needs.source_kind == "images" ? WebKind::Images : WebKind::Audio;
      parts.push_back(std::make_shared<WebDatasetSource>(as_paths(names), kind, audio_settings(config)));
      continue;
    }
    std::vector<std::shared_ptr<Source>> joined;
    for (const auto& name : names) {
      if (needs.source_kind == "parquet")
        joined.push_back(open_parquet(config, name));
      else if (needs.source_kind == "images")
        joined.push_back(std::make_shared<ImageSource>(name, config.allow_absolute.value()));
      else
        throw ConfigError("path '" + printable(name) +
                          "' is for Parquet files, pictures or tars; audio files are named by manifest_filepath.");
    }
    parts.push_back(join(std::move(joined)).source);
  }
  OpenedData data = join(std::move(parts));
  data.tarred = tars && needs.source_kind != "parquet";
  return data;
}

OpenedData open_synth(const DatasetConfig& config, const TaskNeeds& needs) {
  const SynthResult made = synthesize_cached(*config.synth, std::filesystem::path(config.cache_dir) / "synth");
  DatasetConfig named = config;
  named.synth.reset();
  const config::Node where = config::Node::scalar((needs.training ? made.train : made.validation).string(), true);
  (config.synth->kind == "speech" ? named.manifest_filepath : named.path) = where;
  OpenedData data = open_data(named, needs);
  if (data.noise_manifests.empty() && !made.noise.empty()) data.noise_manifests.push_back(made.noise);
  return data;
}

void check_kind(const DatasetConfig& config, const TaskNeeds& needs) {
  const std::string& kind = needs.source_kind;
  if (kind != "audio" && kind != "parquet" && kind != "images" && kind != "tensors") {
    throw ConfigError("The data kind '" + printable(kind) +
                      "' is unknown; known are audio, parquet, images and tensors.");
  }
  const auto refuse = [&](bool given, const char* key, const char* fits) {
    if (given) throw ConfigError(std::string(key) + " is for " + fits + "; this data set is of kind " + kind + ".");
  };
  if (kind != "audio") {
    refuse(!config.manifest_filepath.is_null(), "manifest_filepath", "audio");
    refuse(config.min_duration.has_value(), "min_duration", "audio");
    refuse(config.max_duration.has_value(), "max_duration", "audio");
    refuse(config.batch_duration.has_value(), "batch_duration", "audio");
    refuse(config.batch_augmentor.has_value(), "batch_augmentor", "audio");
    refuse(!config.noise_manifest.is_null(), "noise_manifest", "audio");
  } else {
    refuse(config.max_sequence_length.has_value(), "max_sequence_length", "sequences (use max_duration)");
    refuse(config.batch_tokens.has_value(), "batch_tokens", "sequences (use batch_duration)");
  }
  if (kind != "parquet") refuse(!config.columns.empty(), "columns", "Parquet data");
}

}  // namespace

OpenedData open_data(const DatasetConfig& config, const TaskNeeds& needs) {
  if (needs.source_kind == "tensors") {
    if (needs.source == nullptr) throw ConfigError("The task reads tensors, so the caller must hand them over.");
    OpenedData data;
    data.source = needs.source;
    return data;
  }
  config.check();
  check_kind(config, needs);
  if (config.synth) return open_synth(config, needs);
  OpenedData data = config.manifest_filepath.is_null() ? open_path(config, needs) : open_manifests(config);
  for (const auto& names : name_lists(config.noise_manifest, "noise_manifest")) {
    data.noise_manifests.insert(data.noise_manifests.end(), names.begin(), names.end());
  }
  return data;
}

}  // namespace redline::data
