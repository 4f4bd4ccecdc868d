// The options of one data set: the sections model.train_ds and model.validation_ds. NeMo's names where NeMo has one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"
#include "core/machine_facts.h"
#include "data/synth.h"

namespace redline::data {

struct DatasetConfig;
inline constexpr int kMaxWorkers = 64;

// The rows of NeMo's MultiSpeakerNoiseAugmentation; the task that mixes noise reads them.
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

// The rows of audio (data/audio/audio_options.cpp).
struct AudioOptions {
  int sample_rate = 16000;
  std::string channel_selector = "average";
  double min_audio_len_secs = 1.0;
  std::string pad_audio_mode = "repeat";
  double min_gain_db = 0.0, max_gain_db = 0.0;
  std::optional<MultiSpeakerNoiseConfig> batch_augmentor;
  int64_t noise_cache_bytes = int64_t{256} << 20;

  static void add_rows(config::Table<DatasetConfig>& table);
  void check() const;
};

// The rows of random changes to pictures in training, timm's names where timm has one
// (data/images/augment_options.cpp).
struct AugmentConfig {
  std::vector<double> color_jitter;  // brightness, contrast, saturation, or one number for all; empty: not
  std::string auto_augment;          // "rand-m9-mstd0.5-inc1"; empty: not
  double reprob = 0.0;               // random erasing
  std::string remode = "pixel";
  int recount = 1;
  double mixup = 0.0, cutmix = 0.0;  // alpha; 0: not
  double mixup_prob = 1.0, mixup_switch_prob = 0.5;
  std::string mixup_mode = "batch";

  bool mixes() const { return mixup > 0.0 || cutmix > 0.0; }
  static config::Table<AugmentConfig> fields();
  void check() const;
};

// The rows of pictures (data/images/image_options.cpp).
struct ImageOptions {
  std::string decode = "exact";
  int image_size = 224;
  std::string image_crop = "none";
  std::vector<double> image_scale{0.08, 1.0}, image_ratio{0.75, 4.0 / 3.0};
  double image_center_fraction = 0.875, image_flip = 0.0, image_rotate = 0.0;
  std::string image_filter = "bicubic";
  int image_channels = 3;
  bool exif_rotation = true;
  std::vector<double> image_mean{0.485, 0.456, 0.406}, image_std{0.229, 0.224, 0.225};
  std::optional<AugmentConfig> augment;

  static void add_rows(config::Table<DatasetConfig>& table);
  void check() const;
};

// One section for all kinds of this room, so that a file names its keys without naming a kind; a kind refuses the keys
// of others.
struct DatasetConfig : AudioOptions, ImageOptions {
  // Where samples come from: exactly one of manifest_filepath (audio), path (Parquet, pictures, WebDataset tars) and
  // synth.
  config::Node
      manifest_filepath;  // a name, a list of names, or a list of lists (static buckets); names may hold ranges
  config::Node path;      // the same
  std::optional<SynthConfig> synth;
  config::Node tarred_audio_filepaths;  // as manifest_filepath
  bool is_tarred = false;
  double max_missing_fraction = 0.1;
  config::Node noise_manifest;  // a name, "a,b" or a list
  std::vector<std::string> columns;
  std::string length_column;
  config::Auto<bool> allow_absolute;
  std::string data_root;

  // Batches and order.
  config::Auto<int64_t> batch_size;
  config::Auto<int64_t> micro_batch_size;
  bool shuffle = false;
  config::Auto<int64_t> seed;
  bool drop_last = false;
  std::optional<double> min_duration, max_duration;
  std::optional<int64_t> max_sequence_length;
  bool use_dynamic_padding = true;
  config::Auto<bool> use_bucketing;
  int num_buckets = 1;
  std::vector<double> bucket_duration_bins;
  std::optional<double> batch_duration;
  std::optional<int64_t> batch_tokens;
  config::Auto<int64_t> shuffle_window;
  int64_t shuffle_n = 2048;
  std::string tarred_shard_strategy = "scatter";
  std::string bucketing_strategy = "synced_randomized";
  config::Node bucketing_batch_size;  // null, a number or a list
  std::vector<int64_t> bucketing_weights;
  bool is_concat = false;
  std::string concat_sampling_technique = "temperature";
  double concat_sampling_temperature = 5.0;
  double concat_sampling_scale = 1.0;
  std::vector<double> concat_sampling_probabilities;
  bool concat_shuffle = true;

  // Workers.
  config::Auto<int> num_workers;
  int prefetch_factor = 2;
  bool persistent_workers = true;
  bool pin_memory = false;
  int64_t max_buffer_bytes = int64_t{1} << 30;

  // Cache and bad samples.
  std::string cache = "none";
  int64_t cache_bytes = int64_t{4} << 30;
  std::string cache_dir = ".cache/redline";
  double max_bad_fraction = 0.05;

  // Plain names, for model.validation_ds; and with the bare flags and aliases of the guides, for model.train_ds.
  static config::Table<DatasetConfig> fields() { return table(false); }
  static config::Table<DatasetConfig> training_fields() { return table(true); }

  // True when the section names any data.
  bool given() const;
  // Sets every auto: workers from the cores this process may use, the seed from the run's. Says in one line each what
  // cannot be done here (pin_memory without a device, more workers than cores) and sets what is done instead.
  void resolve(const MachineFacts& machine, int64_t run_seed);
  // Throws ConfigError naming the keys when options contradict each other; after resolve().
  void check() const;

 private:
  static config::Table<DatasetConfig> table(bool training);
};

// The names below a node, ranges expanded: one inner list per part. A plain name or list is one part; a list of lists
// one part each. Throws ConfigError with the node's place when it is neither.
std::vector<std::vector<std::string>> name_lists(const config::Node& node, const char* key);

}  // namespace redline::data
