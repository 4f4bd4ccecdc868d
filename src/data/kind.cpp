#include "data/kind.h"

#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "data/files/open_parts.h"
#include "data/kinds.h"
#include "data/parquet/sequence_transforms.h"

namespace redline::data {

bool all_tars(const NameLists& lists) {
  return std::all_of(lists.begin(), lists.end(), [](const auto& names) {
    // A compressed one is a tar too, which its reader refuses by name.
    return std::all_of(names.begin(), names.end(), [](const std::string& name) {
      return ends_with(name, ".tar") || ends_with(name, ".tgz") || name.find(".tar.") != std::string::npos;
    });
  });
}

bool Kind::given(const DatasetConfig& config, bool) const { return config.given(); }

Transforms Kind::transforms(const DatasetConfig& config, const TaskNeeds& needs, const OpenedData&) const {
  Transforms list;
  if (config.max_sequence_length && needs.sample_transform == nullptr)
    list.push_back(std::make_shared<Truncate>(*config.max_sequence_length));
  for (const auto& own : {needs.raw_transform, needs.sample_transform})
    if (own != nullptr) list.push_back(own);
  return list;
}

std::shared_ptr<const GroupTransform> Kind::group_transform(const DatasetConfig&, const TaskNeeds& needs) const {
  return needs.group_transform;
}

CollateSpec Kind::collate(const DatasetConfig&, const Source&) const { return {}; }

void StoredKind::refuse(bool given, const char* key, const char* fits) const {
  if (given) throw ConfigError(std::string(key) + " is for " + fits + "; this data set is of kind " + name() + ".");
}

void StoredKind::refuse_audio_keys(const DatasetConfig& config) const {
  refuse(!config.manifest_filepath.is_null(), "manifest_filepath", "audio");
  refuse(config.min_duration.has_value(), "min_duration", "audio");
  refuse(config.max_duration.has_value(), "max_duration", "audio");
  refuse(config.batch_duration.has_value(), "batch_duration", "audio");
  refuse(config.batch_augmentor.has_value(), "batch_augmentor", "audio");
  refuse(!config.noise_manifest.is_null(), "noise_manifest", "audio");
}

OpenedData StoredKind::open(const DatasetConfig& config, bool training) const {
  config.check();
  refuse_foreign_keys(config);
  if (!config.synth) return open_files(config);
  if (config.synth->kind != synth_name())
    throw ConfigError("synth makes " + config.synth->kind + ", but this data set is of kind " + name() +
                      ": set synth.kind to " + synth_name() + ".");
  const SynthResult made = synthesize_cached(*config.synth, std::filesystem::path(config.cache_dir) / "synth");
  DatasetConfig named = config;
  named.synth.reset();
  named.*named_by() = config::Node::scalar((training ? made.train : made.validation).string(), true);
  OpenedData data = open_files(named);
  if (data.noise_manifests.empty() && !made.noise.empty()) data.noise_manifests.push_back(made.noise);
  return data;
}

namespace {

class MemoryKind : public Kind {
 public:
  explicit MemoryKind(std::function<std::shared_ptr<Source>(bool)> open) : open_(std::move(open)) {}
  std::string name() const override { return "tensors"; }
  bool given(const DatasetConfig&, bool training) const override { return source(training) != nullptr; }
  OpenedData open(const DatasetConfig&, bool training) const override {
    OpenedData data;
    data.source = source(training);
    if (data.source == nullptr) throw ConfigError("The task reads tensors, so the caller must hand them over.");
    return data;
  }

 private:
  const std::shared_ptr<Source>& source(bool training) const {
    std::shared_ptr<Source>& held = held_[training ? 0 : 1];
    if (held == nullptr) held = open_(training);
    return held;
  }
  std::function<std::shared_ptr<Source>(bool)> open_;
  mutable std::shared_ptr<Source> held_[2];  // training, validation
};

}  // namespace

std::shared_ptr<const Kind> memory_kind(std::function<std::shared_ptr<Source>(bool)> open) {
  return std::make_shared<MemoryKind>(std::move(open));
}

namespace {

std::vector<std::shared_ptr<const Kind>> known_kinds() { return {audio_kind(), table_kind(), image_kind()}; }

}  // namespace

std::shared_ptr<const Kind> kind_named(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& kind : known_kinds()) {
    names.push_back(kind->name());
    if (names.back() == name) return kind;
  }
  throw ConfigError("The data kind '" + printable(name) + "' is unknown; known are " + join(names, ", ") + ".");
}

std::shared_ptr<const Kind> guess_kind(const DatasetConfig& config) {
  for (const auto& kind : known_kinds()) {
    const auto& stored = static_cast<const StoredKind&>(*kind);
    if (config.synth && config.synth->kind == stored.synth_name()) return kind;
  }
  if (!config.manifest_filepath.is_null()) return audio_kind();
  const auto lists = name_lists(config.path, "path");
  const std::string first = lists.empty() || lists[0].empty() ? "" : lists[0][0];
  if (ends_with(first, ".tar")) return audio_kind();
  if (ends_with(first, ".parquet")) return table_kind();
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(first, ignored)) {
    if (entry.path().extension() == ".parquet") return table_kind();
  }
  return image_kind();
}

}  // namespace redline::data
