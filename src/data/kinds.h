// The kinds of data that come with this room.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "data/kind.h"

namespace redline::data {

// Clips named by manifests, in files or tars, or WebDataset tars. A task that mixes noise derives from it.
class AudioKind : public StoredKind {
 public:
  std::string name() const override { return "audio"; }
  std::string synth_name() const override { return "speech"; }
  std::string data_key() const override { return "manifest_filepath"; }
  Transforms transforms(const DatasetConfig& config, const TaskNeeds& needs, const OpenedData& data) const override;
  CollateSpec collate(const DatasetConfig& config, const Source& source) const override;
  std::optional<int64_t> longest(const DatasetConfig& config) const override;
  double items_per_length(const DatasetConfig& config) const override { return config.sample_rate; }
  std::string length_rate_name() const override { return "audio_seconds_per_second"; }

 protected:
  // noise_manifest and batch_augmentor are refused without: they would have no effect.
  virtual bool mixes_noise() const { return false; }
  void refuse_foreign_keys(const DatasetConfig& config) const override;
  OpenedData open_files(const DatasetConfig& config) const override;
  config::Node DatasetConfig::*named_by() const override { return &DatasetConfig::manifest_filepath; }
};

std::shared_ptr<const Kind> audio_kind();
std::shared_ptr<const Kind> image_kind();  // a folder per class, an index, WebDataset tars, arrays
// Parquet. `column`: the one that a task reads; options that leave it out are refused.
std::shared_ptr<const Kind> table_kind(const std::string& column = {});
// Samples in memory, or any source of the task's own. `open` may return null: that part has no data.
std::shared_ptr<const Kind> memory_kind(std::function<std::shared_ptr<Source>(bool training)> open);

// For a data set without a task: by its name (audio, parquet, images; ConfigError for another), or by what its options
// name.
std::shared_ptr<const Kind> kind_named(const std::string& name);
std::shared_ptr<const Kind> guess_kind(const DatasetConfig& config);

}  // namespace redline::data
