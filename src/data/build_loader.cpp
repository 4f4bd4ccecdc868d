#include "data/build_loader.h"

#include <limits>

#include "core/check.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"
#include "data/tensor_batch.h"
#include "data/workers/item_memory.h"
#include "data/workers/ordered_loader.h"

namespace redline::data {

namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
// Larger tables are shuffled in windows. A constant: were it max_buffer_bytes, the order would depend on how much
// memory a run may use, and a run could not go on where there is less.
constexpr uint64_t kFullShuffleBytes = uint64_t{1} << 30;

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
  const uint64_t table_bytes = data.source->table_bytes();
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

// use_dynamic_padding: false pads every batch to the longest sample there may be.
void fix_padding(const DatasetConfig& config, const Kind& kind, CollateSpec& collate) {
  const std::optional<int64_t> longest = kind.longest(config);
  if (config.use_dynamic_padding || !longest) return;
  if (*longest == 0)
    throw ConfigError("use_dynamic_padding: false needs max_duration (audio) or max_sequence_length (sequences).");
  for (auto& field : collate.fields) {
    const int64_t multiple = std::max<int64_t>(1, field.pad_to_multiple);
    field.pad_to_multiple = (*longest + multiple - 1) / multiple * multiple;
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
  if (filtered.kept + filtered.held_out == filtered.total) return;
  const PlanSettings& plan = planner.settings();
  log_info(std::to_string(filtered.too_short + filtered.too_long) + " of " + std::to_string(filtered.total) +
           " samples are left out: " + std::to_string(filtered.too_short) + " below " + format_double(plan.min_length) +
           " and " + std::to_string(filtered.too_long) + " above " + format_double(plan.max_length) + " " + unit + ".");
}

LoaderSettings loader_settings(const DatasetConfig& config, const TaskNeeds& needs, const PlanSettings& plan) {
  LoaderSettings loader;
  loader.split = split_settings(config, needs, plan);
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

OpenedData open_data(const DatasetConfig& config, const TaskNeeds& needs) {
  REDLINE_CHECK(needs.kind != nullptr, "a loader is of some kind of data");
  return needs.kind->open(config, needs.training || needs.hold_out.share > 0);  // both parts of the same samples
}

SplitSettings split_settings(const DatasetConfig& config, const TaskNeeds& needs, const PlanSettings& plan) {
  SplitSettings split;
  split.rank = needs.rank;
  split.world = needs.world;
  // The whole batch at once is "as many micro-batches as groups": then static buckets of any size stay whole too.
  const int64_t micro = config.micro_batch_size.value();
  split.micro_batch_size = micro == config.batch_size.value() ? 0 : micro;
  split.keep_groups = needs.batch_statistics;
  split.across_ranks = needs.batch_statistics && needs.statistics_across_ranks;
  split.bounded_groups = plan.group_length > 0.0;
  split.mixes_groups = needs.kind->group_transform(config, needs) != nullptr;
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
  plan.hold_out = needs.hold_out;
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

std::unique_ptr<Loader> build_loader(const DatasetConfig& config, const TaskNeeds& needs) {
  const Kind& kind = *needs.kind;
  const OpenedData data = open_data(config, needs);
  const auto planner = make_planner(config, needs, data);
  StretchRunner::Parts parts;
  parts.collate = needs.collate.fields.empty() ? kind.collate(config, *data.source) : needs.collate;
  parts.collate.channels_last = needs.channels_last;
  fix_padding(config, kind, parts.collate);
  parts.max_length = config.max_sequence_length.value_or(0);
  if (config.pin_memory) parts.allocator = pinned_arrays();
  parts.group_transform = kind.group_transform(config, needs);
  Transforms transforms = kind.transforms(config, needs, data);
  // Rows of a table that nothing touches one by one are collated straight from it.
  const auto* reader = dynamic_cast<const BatchReader*>(data.source.get());
  if (reader != nullptr && needs.raw_transform == nullptr && needs.sample_transform == nullptr &&
      parts.group_transform == nullptr && config.cache == "none" && reader->can_collate(parts.collate)) {
    parts.batch_reader = reader;
  }
  auto cache = make_cache(config, transforms);
  parts.chain = std::make_shared<SampleChain>(
      data.source, std::move(transforms), std::move(cache), planner,
      std::make_shared<MemoryBudget>(config.max_buffer_bytes, config.num_workers.value()));
  return std::make_unique<OrderedLoader>(loader_settings(config, needs, planner->settings()), planner,
                                         std::move(parts));
}

}  // namespace redline::data
