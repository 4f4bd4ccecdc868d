#include "data/build_loader.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"
#include "data/audio/audio_transforms.h"
#include "data/images/image_transforms.h"
#include "data/parquet/parquet_source.h"
#include "data/parquet/sequence_transforms.h"
#include "data/tensor_batch.h"
#include "data/workers/item_memory.h"
#include "data/workers/ordered_loader.h"

namespace redline::data {

namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
// Larger tables are shuffled in windows. A constant: were it max_buffer_bytes, the order would depend on how much
// memory a run may use, and a run could not go on where there is less.
constexpr uint64_t kFullShuffleBytes = uint64_t{1} << 30;

bool wants(const CollateSpec& spec, std::string_view name) {
  for (const auto& field : spec.fields) {
    if (field.name == name) return true;
  }
  return false;
}

std::vector<int64_t> part_batches(const DatasetConfig& config, size_t parts) {
  const config::Node& node = config.bucketing_batch_size;
  if (node.is_null()) return {};
  std::vector<int64_t> sizes;
  const auto number = [&](const config::Node& item) {
    const auto value = item.as_int();
    if (!value || *value < 1)
      throw ConfigError(item.origin.text() + ": bucketing_batch_size must be whole numbers from 1.");
    return *value;
  };
  if (node.is_list()) {
    for (const auto& item : node.items()) sizes.push_back(number(item));
  } else {
    const int64_t base = number(node);
    for (size_t p = 0; p < parts; ++p)
      sizes.push_back(base * static_cast<int64_t>(parts - p));  // NeMo: the shortest bucket gets most
  }
  return sizes;
}

void set_parts(const DatasetConfig& config, const OpenedData& data, PlanSettings& plan) {
  plan.part_sizes = data.part_sizes;
  if (data.part_sizes.empty()) {
    if (!config.bucketing_batch_size.is_null()) {
      throw ConfigError("bucketing_batch_size needs static buckets: a list of lists in manifest_filepath.");
    }
    return;
  }
  if (config.is_concat) {
    plan.parts_are_sampled = true;
    plan.shuffle = config.shuffle && config.concat_shuffle;
    plan.sampling = config.concat_sampling_technique == "temperature"   ? ConcatSampling::Temperature
                    : config.concat_sampling_technique == "round-robin" ? ConcatSampling::RoundRobin
                                                                        : ConcatSampling::Random;
    plan.temperature = config.concat_sampling_temperature;
    plan.sampling_scale = config.concat_sampling_scale;
    plan.sampling_weights = config.concat_sampling_probabilities;
    if (plan.sampling == ConcatSampling::Random && plan.sampling_weights.size() != data.part_sizes.size()) {
      throw ConfigError("concat_sampling_probabilities needs one value per manifest: " +
                        std::to_string(data.part_sizes.size()) + ".");
    }
    return;
  }
  if (config.use_bucketing.value() || plan.group_length > 0.0) {
    throw ConfigError(
        "A list of lists of manifests is static buckets; num_buckets, batch_duration and batch_tokens make buckets of "
        "their own. Use one.");
  }
  plan.parts_are_buckets = true;
  plan.part_order = config.bucketing_strategy == "fixed_order"         ? PartOrder::FixedOrder
                    : config.bucketing_strategy == "synced_randomized" ? PartOrder::SyncedRandomized
                                                                       : PartOrder::FullyRandomized;
  plan.part_batch_sizes = part_batches(config, data.part_sizes.size());
  plan.part_weights = config.bucketing_weights;
}

void set_window(const DatasetConfig& config, const OpenedData& data, PlanSettings& plan) {
  if (!config.shuffle) return;
  if (data.tarred && config.shuffle_n >= 0) plan.window_samples = std::max<int64_t>(1, config.shuffle_n);
  const auto* parquet = dynamic_cast<const ParquetSource*>(data.source.get());
  if (parquet == nullptr) return;
  const uint64_t table_bytes = parquet->decoded_bytes();
  if (config.shuffle_window.value() > 0 && table_bytes > kFullShuffleBytes) {
    plan.window_locality_groups = config.shuffle_window.value();
  } else if (table_bytes > static_cast<uint64_t>(config.max_buffer_bytes)) {
    log_warning_once("The whole table is shuffled but max_buffer_bytes (" +
                     format_bytes(static_cast<uint64_t>(config.max_buffer_bytes)) + ") holds only a part of its " +
                     format_bytes(table_bytes) +
                     ": row groups are decoded again and again. Raise max_buffer_bytes to "
                     "that, if there is the memory.");
  }
}

ImageSettings image_settings(const DatasetConfig& config) {
  ImageSettings image;
  image.width = image.height = config.image_size;
  image.crop = config.image_crop == "random_resized" ? ImageCrop::RandomResized
               : config.image_crop == "center"       ? ImageCrop::Center
                                                     : ImageCrop::None;
  image.min_scale = config.image_scale[0], image.max_scale = config.image_scale[1];
  image.min_ratio = config.image_ratio[0], image.max_ratio = config.image_ratio[1];
  image.center_fraction = config.image_center_fraction;
  image.flip_chance = config.image_flip;
  image.max_degrees = config.image_rotate;
  image.filter = config.image_filter == "bicubic" ? ResizeFilter::Bicubic : ResizeFilter::Bilinear;
  image.decode = config.decode == "fast" ? ImageDecode::Fast : ImageDecode::Exact;
  for (size_t c = 0; c < 3; ++c) {
    image.normalization.mean[c] = static_cast<float>(config.image_mean[c]);
    image.normalization.stddev[c] = static_cast<float>(config.image_std[c]);
  }
  return image;
}

using Transforms = std::vector<std::shared_ptr<const SampleTransform>>;

void add_audio_transforms(const DatasetConfig& config, const TaskNeeds& needs, const OpenedData& data,
                          const CollateSpec& collate, Transforms& list) {
  if (config.min_audio_len_secs > 0.0) {
    list.push_back(std::make_shared<MinimumLength>(config.min_audio_len_secs, config.sample_rate,
                                                   config.pad_audio_mode == "repeat"));
  }
  if (config.min_gain_db != 0.0 || config.max_gain_db != 0.0)
    list.push_back(std::make_shared<RandomGain>(config.min_gain_db, config.max_gain_db));
  if (needs.sample_transform != nullptr) list.push_back(needs.sample_transform);
  if (!wants(collate, "noise") && !wants(collate, "noisy_audio")) return;
  std::shared_ptr<const NoiseBank> bank;
  if (!data.noise_manifests.empty()) {
    ManifestOptions options;
    options.audio.sample_rate = config.sample_rate;
    options.allow_absolute = config.allow_absolute.value();
    bank = std::make_shared<NoiseBank>(data.noise_manifests, options, config.noise_cache_bytes);
  }
  const bool quirks = config.batch_augmentor && config.batch_augmentor->reference_quirks;
  list.push_back(std::make_shared<NoiseSampler>(bank, config.sample_rate, quirks));
  if (!config.batch_augmentor) list.push_back(std::make_shared<AddNoise>());
}

// The augmentor first, then what the task itself mixes.
class BothTransforms : public GroupTransform {
 public:
  BothTransforms(std::shared_ptr<const GroupTransform> first, std::shared_ptr<const GroupTransform> second)
      : first_(std::move(first)), second_(std::move(second)) {}
  void apply(std::span<Sample> group, const DrawKey& key) const override {
    first_->apply(group, key);
    second_->apply(group, key);
  }
  std::string fingerprint() const override { return first_->fingerprint() + "; " + second_->fingerprint(); }

 private:
  std::shared_ptr<const GroupTransform> first_, second_;
};

std::shared_ptr<const GroupTransform> group_transform(const DatasetConfig& config, const TaskNeeds& needs,
                                                      const CollateSpec& collate) {
  std::shared_ptr<const GroupTransform> own;
  if (needs.source_kind == "audio" && config.batch_augmentor &&
      (wants(collate, "noise") || wants(collate, "noisy_audio"))) {
    own = std::make_shared<MultiSpeakerNoise>(*config.batch_augmentor, wants(collate, "noise"));
  }
  if (own == nullptr) return needs.group_transform;
  if (needs.group_transform == nullptr) return own;
  return std::make_shared<BothTransforms>(own, needs.group_transform);
}

// use_dynamic_padding: false pads every batch to the longest sample there may be.
void fix_padding(const DatasetConfig& config, const TaskNeeds& needs, CollateSpec& collate) {
  if (config.use_dynamic_padding || needs.source_kind == "images") return;
  const int64_t longest = needs.source_kind == "audio"
                              ? static_cast<int64_t>(std::ceil(config.max_duration.value_or(0.0) * config.sample_rate))
                              : config.max_sequence_length.value_or(0);
  if (longest == 0)
    throw ConfigError("use_dynamic_padding: false needs max_duration (audio) or max_sequence_length (sequences).");
  for (auto& field : collate.fields) {
    const int64_t multiple = std::max<int64_t>(1, field.pad_to_multiple);
    field.pad_to_multiple = (longest + multiple - 1) / multiple * multiple;
  }
}

std::shared_ptr<FeatureCache> make_cache(const DatasetConfig& config, const Transforms& transforms) {
  if (config.cache == "memory") return make_memory_cache(config.cache_bytes);
  if (config.cache != "disk") return nullptr;
  const uint64_t settings = hash64(SampleChain::fingerprint(transforms));
  return make_disk_cache(std::filesystem::path(config.cache_dir) / "features", settings, config.cache_bytes);
}

void report_filter(const Planner& planner, const std::string& unit) {
  const FilterReport& filtered = planner.filtered();
  if (filtered.kept == filtered.total) return;
  const PlanSettings& plan = planner.settings();
  log_info(std::to_string(filtered.total - filtered.kept) + " of " + std::to_string(filtered.total) +
           " samples are left out: " + std::to_string(filtered.too_short) + " below " + format_double(plan.min_length) +
           " and " + std::to_string(filtered.too_long) + " above " + format_double(plan.max_length) + " " + unit + ".");
}

LoaderSettings loader_settings(const DatasetConfig& config, const TaskNeeds& needs, const PlanSettings& plan,
                               const CollateSpec& collate) {
  LoaderSettings loader;
  loader.split = split_settings(config, needs, plan, collate);
  loader.num_workers = config.num_workers.value();
  loader.prefetch_batches = static_cast<int64_t>(config.prefetch_factor) * std::max(1, config.num_workers.value());
  loader.max_buffer_bytes = config.max_buffer_bytes;
  loader.persistent_workers = config.persistent_workers;
  loader.continuous = needs.training;
  loader.on_worker_start = use_one_intraop_thread;
  if (!needs.run_directory.empty()) loader.bad_samples_file = needs.run_directory / "bad_samples.jsonl";
  loader.bad_limits.max_fraction = config.max_bad_fraction;
  return loader;
}

}  // namespace

SplitSettings split_settings(const DatasetConfig& config, const TaskNeeds& needs, const PlanSettings& plan,
                             const CollateSpec& collate) {
  SplitSettings split;
  split.rank = needs.rank;
  split.world = needs.world;
  // The whole batch at once is "as many micro-batches as groups": then static buckets of any size stay whole too.
  const int64_t micro = config.micro_batch_size.value();
  split.micro_batch_size = micro == config.batch_size.value() ? 0 : micro;
  split.keep_groups = needs.batch_statistics;
  split.bounded_groups = plan.group_length > 0.0;
  split.mixes_groups = group_transform(config, needs, collate) != nullptr;
  return split;
}

PlanSettings plan_settings(const DatasetConfig& config, const TaskNeeds& needs, const OpenedData& data) {
  PlanSettings plan;
  plan.seed = static_cast<uint64_t>(config.seed.value());
  plan.shuffle = config.shuffle;
  plan.drop_last = config.drop_last;
  plan.batch_size = config.batch_size.value();
  plan.groups_per_step = needs.accumulate;
  plan.min_length = config.min_duration.value_or(0.0);
  plan.max_length = config.max_duration.value_or(kNoLimit);
  if (config.max_sequence_length) plan.cut_length = static_cast<double>(*config.max_sequence_length);
  if (config.use_bucketing.value()) {
    plan.num_buckets = config.num_buckets;
    plan.bucket_edges = config.bucket_duration_bins;
  }
  plan.group_length =
      config.batch_duration ? *config.batch_duration : static_cast<double>(config.batch_tokens.value_or(0));
  if (data.tarred && config.tarred_shard_strategy == "replicate") plan.replicas = needs.world;
  set_parts(config, data, plan);
  set_window(config, data, plan);
  return plan;
}

std::shared_ptr<const Planner> make_planner(const DatasetConfig& config, const TaskNeeds& needs,
                                            const OpenedData& data) {
  PlanSettings settings = plan_settings(config, needs, data);
  const std::shared_ptr<Source> source = data.source;
  PlanSource plan{source->size(), [source](int64_t i) { return source->length(i); }, {}, source->fingerprint()};
  if (settings.window_locality_groups > 0 || settings.window_samples > 0) plan.locality = source->locality_groups();
  auto planner = std::make_shared<Planner>(std::move(settings), std::move(plan));
  report_filter(*planner, source->length_unit());
  return planner;
}

CollateSpec default_collate(const DatasetConfig& config, const TaskNeeds& needs, const Source& source) {
  CollateSpec spec;
  if (needs.source_kind == "audio") {
    spec.fields.push_back({"audio", 0.0, 1, "audio_len", false});
    if (config.batch_augmentor || !config.noise_manifest.is_null())
      spec.fields.push_back({"noisy_audio", 0.0, 1, "noisy_audio_len", false});
    spec.counted_field = "audio";
  } else if (needs.source_kind == "images") {
    spec.fields.push_back({"image", 0.0, 1, "", false});
    spec.fields.push_back({"label", 0.0, 1, "", true});
  } else if (const auto* parquet = dynamic_cast<const ParquetSource*>(&source)) {
    for (const auto& column : parquet->columns()) {
      spec.fields.push_back({column.name, 0.0, 1, column.is_list ? column.name + "_len" : "", false});
      if (column.is_list && spec.counted_field.empty()) spec.counted_field = column.name;
    }
  }
  return spec;
}

std::unique_ptr<Loader> build_loader(const DatasetConfig& config, const TaskNeeds& needs) {
  const OpenedData data = open_data(config, needs);
  const auto planner = make_planner(config, needs, data);
  JobRunner::Parts parts;
  parts.collate = needs.collate.fields.empty() ? default_collate(config, needs, *data.source) : needs.collate;
  fix_padding(config, needs, parts.collate);
  parts.max_length = config.max_sequence_length.value_or(0);
  if (config.pin_memory) parts.allocator = pinned_arrays();
  parts.group_transform = group_transform(config, needs, parts.collate);

  Transforms transforms;
  if (needs.source_kind == "audio") {
    add_audio_transforms(config, needs, data, parts.collate, transforms);
  } else {
    if (needs.source_kind == "images") {
      if (config.cache != "none") transforms.push_back(std::make_shared<DecodeImage>());
      transforms.push_back(std::make_shared<PrepareImage>(image_settings(config)));
    } else if (config.max_sequence_length && needs.sample_transform == nullptr) {
      // A task's own transform cuts by itself: only it knows how many numbers a step has.
      transforms.push_back(std::make_shared<Truncate>(*config.max_sequence_length));
    }
    if (needs.sample_transform != nullptr) transforms.push_back(needs.sample_transform);
  }
  // Rows of a table that nothing touches one by one are collated straight from it.
  const auto* reader = dynamic_cast<const BatchReader*>(data.source.get());
  if (reader != nullptr && needs.sample_transform == nullptr && parts.group_transform == nullptr &&
      config.cache == "none" && reader->can_collate(parts.collate)) {
    parts.batch_reader = reader;
  }
  auto cache = make_cache(config, transforms);
  parts.chain = std::make_shared<SampleChain>(
      data.source, std::move(transforms), std::move(cache), planner,
      std::make_shared<MemoryBudget>(config.max_buffer_bytes, config.num_workers.value()));
  return std::make_unique<OrderedLoader>(loader_settings(config, needs, planner->settings(), parts.collate), planner,
                                         std::move(parts));
}

}  // namespace redline::data
