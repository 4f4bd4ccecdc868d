// The field table of a data set. What each row changes besides speed decides what the tuner may move freely.
#include "core/error.h"
#include "data/dataset_config.h"
#include "data/option_names.h"

namespace redline::data {

namespace {

using D = DatasetConfig;
using config::Effect;
using Table = config::Table<DatasetConfig>;

void add_source_rows(Table& t) {
  t.add("manifest_filepath", &D::manifest_filepath,
        "NeMo manifest: a name, a list, or a list of lists (static buckets); names may hold ranges like {0..9} or "
        "_OP_0..9_CL_.")
      .paths();
  t.add("path", &D::path,
        "Parquet files (file, folder or glob), a folder of class folders, an index of pictures (.csv, .jsonl), or "
        "WebDataset tars.")
      .paths();
  t.group("synth", &D::synth, "Generates a data set once into cache_dir and uses it.");
  t.one_of({"manifest_filepath", "path", "synth"});
  t.add("tarred_audio_filepaths", &D::tarred_audio_filepaths,
        "Tars that hold the manifest's audio; names may hold ranges.")
      .paths();
  t.add("max_missing_fraction", &D::max_missing_fraction,
        "Share of a manifest's entries that may be missing from its tars before the run is refused.")
      .range(0, 1);
  t.add("is_tarred", &D::is_tarred, "The manifest's audio lies in tars.").effect(Effect::Order).tuned_by("tars");
  t.add("noise_manifest", &D::noise_manifest, "Manifest(s) of noise clips, one of which is drawn for each clip.")
      .effect(Effect::Optimisation)
      .paths();
  t.add("columns", &D::columns, "Parquet columns to read; empty reads all numeric ones.");
  t.add("length_column", &D::length_column,
        "Parquet column whose length is the sample's; empty takes the first list column.");
  t.add("allow_absolute", &D::allow_absolute,
        "Follow absolute names in manifests and tables; auto is on, except for tarred data.");
  t.add("data_root", &D::data_root, "Folder that named files must lie in; empty is the manifest's own folder.").path();
}

// Of a batch: far above any that fits, and its products stay within 64 bits.
constexpr double kMostSamples = 1 << 24;

void add_batch_rows(Table& t, bool training) {
  auto batch =
      t.add("batch_size", &D::batch_size, "Samples of a batch; also the group whose samples augmentation mixes.");
  batch.range(0, kMostSamples)
      .effect(Effect::Optimisation)
      .tuned_by("batch", {"2x", "4x", "8x"})
      .alias("samples_per_gpu");
  if (training) batch.flag("batch_size").alias(".data.samples_per_gpu");
  t.add("micro_batch_size", &D::micro_batch_size,
        "Samples computed at once on a rank; auto is batch_size. Splits a step, never changes it.")
      .range(0, kMostSamples)
      .effect(Effect::Nothing)
      .tuned_by("micro_batch");
  t.add("shuffle", &D::shuffle, "Draw a new order each epoch.").effect(Effect::Order);
  t.add("seed", &D::seed, "Seed of order and augmentation; auto is the run's seed.").effect(Effect::Order);
  t.add("drop_last", &D::drop_last, "Leave out the last batch when it is not full.").effect(Effect::Order);
  t.add("min_duration", &D::min_duration, "Shorter samples are left out and counted.")
      .unit("seconds")
      .at_least(0)
      .effect(Effect::Optimisation);
  t.add("max_duration", &D::max_duration, "Longer samples are left out and counted.")
      .unit("seconds")
      .above(0)
      .effect(Effect::Optimisation);
  auto cut = t.add("max_sequence_length", &D::max_sequence_length, "Sequences are cut to this many elements.");
  cut.unit("elements").at_least(1).effect(Effect::Optimisation);
  auto padding = t.add("use_dynamic_padding", &D::use_dynamic_padding,
                       "Pad to the longest sample of the batch; false pads to max_sequence_length (or max_duration).");
  padding.effect(Effect::Numerics).tuned_by("padding");
}

void add_bucket_rows(Table& t) {
  t.add("use_bucketing", &D::use_bucketing, "Batch samples of like length; auto is on when num_buckets is above 1.")
      .effect(Effect::Order)
      .tuned_by("bucketing");
  t.add("num_buckets", &D::num_buckets, "Length buckets, at the quantiles of the lengths.")
      .range(1, 255)
      .effect(Effect::Order)
      .tuned_by("buckets", {"4", "8"});
  t.add("bucket_duration_bins", &D::bucket_duration_bins, "Upper edges of the buckets instead of quantiles, ascending.")
      .effect(Effect::Order);
  t.add("batch_duration", &D::batch_duration, "Batches by padded length: count times longest stays below this.")
      .unit("seconds")
      .above(0)
      .effect(Effect::Optimisation);
  t.add("batch_tokens", &D::batch_tokens, "The same for sequences.")
      .unit("elements")
      .above(0)
      .effect(Effect::Optimisation);
  t.add("shuffle_window", &D::shuffle_window,
        "Row groups (Parquet) whose rows are shuffled together when the table is larger than 1 GiB decoded; 0 always "
        "shuffles fully.")
      .at_least(0)
      .effect(Effect::Order);
  t.add("shuffle_n", &D::shuffle_n,
        "Tarred data: samples shuffled together, tars in random order; 0 shuffles only the tars, -1 everything.")
      .at_least(-1)
      .effect(Effect::Order);
  t.add("tarred_shard_strategy", &D::tarred_shard_strategy,
        "scatter: each sample once per epoch over all ranks; replicate: once per rank.")
      .choices({"scatter", "replicate"})
      .effect(Effect::Order);
  t.add("bucketing_strategy", &D::bucketing_strategy, "Order of static buckets (a list of lists of manifests).")
      .choices({"fixed_order", "synced_randomized", "fully_randomized"})
      .effect(Effect::Order);
  t.add("bucketing_batch_size", &D::bucketing_batch_size,
        "Batch per static bucket: a list, or n for n times the bucket's rank from the end.")
      .effect(Effect::Optimisation);
  t.add("bucketing_weights", &D::bucketing_weights, "How often each static bucket is used per epoch.")
      .effect(Effect::Optimisation);
}

void add_concat_rows(Table& t) {
  t.add("is_concat", &D::is_concat, "Draw from several manifests by probability instead of joining them.")
      .effect(Effect::Optimisation);
  t.add("concat_sampling_technique", &D::concat_sampling_technique, "How a manifest is chosen for each draw.")
      .choices({"temperature", "round-robin", "random"})
      .effect(Effect::Optimisation);
  t.add("concat_sampling_temperature", &D::concat_sampling_temperature, "Temperature T: chances go with size^(1/T).")
      .above(0)
      .effect(Effect::Optimisation);
  t.add("concat_sampling_scale", &D::concat_sampling_scale, "Draws per epoch as a multiple of all samples.")
      .above(0)
      .effect(Effect::Optimisation);
  t.add("concat_sampling_probabilities", &D::concat_sampling_probabilities,
        "Chance of each manifest for the technique random.")
      .effect(Effect::Optimisation);
  t.add("concat_shuffle", &D::concat_shuffle, "Shuffle within each manifest.").effect(Effect::Order);
}

void add_worker_rows(Table& t, bool training) {
  auto workers =
      t.add(kNumWorkers, &D::num_workers, "Threads that read, decode and transform; 0 does it in the training thread.");
  workers.range(0, kMaxWorkers).effect(Effect::Nothing).tuned_by("workers", {"0", "1", "2", "4", "8", "16"}).same_run();
  workers.alias("workers_per_gpu");
  auto prefetch = t.add("prefetch_factor", &D::prefetch_factor, "Batches each worker may be ahead.");
  prefetch.range(1, 1024).effect(Effect::Nothing).tuned_by("prefetch", {"4", "8"}).same_run();
  auto persistent = t.add("persistent_workers", &D::persistent_workers,
                          "Keep the threads from epoch to epoch and work ahead into the next.");
  persistent.effect(Effect::Nothing).same_run();
  auto pin = t.add("pin_memory", &D::pin_memory, "Make batches in memory a device can copy from at full speed.");
  pin.effect(Effect::Nothing).tuned_by("pinning").same_run();
  t.add("max_buffer_bytes", &D::max_buffer_bytes,
        "Memory for samples and batches made ahead, and for decoded Parquet row groups; a sample that needs more than "
        "half of it (and more than 256 MiB) is a bad one.")
      .unit("bytes")
      .at_least(1)
      .effect(Effect::Nothing)
      .same_run();
  if (!training) return;
  workers.flag(kNumWorkers).alias(".data.workers_per_gpu");
  prefetch.flag("prefetch_factor").alias(".data.prefetch_factor");
  persistent.flag("persistent_workers").alias(".data.persistent_workers");
  pin.flag("pin_memory");
}

void add_cache_rows(Table& t) {
  t.add("cache", &D::cache, "Keep decoded and transformed samples up to the first random step: in memory or on disk.")
      .choices({"none", "memory", "disk"})
      .effect(Effect::Nothing)
      .tuned_by("cache", {"memory"})
      .same_run();
  t.add("cache_bytes", &D::cache_bytes, "Limit of the cache.")
      .unit("bytes")
      .at_least(0)
      .effect(Effect::Nothing)
      .same_run();
  t.add("cache_dir", &D::cache_dir, "Folder of the disk cache and of generated data.").same_run();
  t.add("max_bad_fraction", &D::max_bad_fraction, "Share of samples that may be unreadable before the run stops.")
      .range(0, 1);
}

void accept_foreign_keys(Table& t) {
  t.accept("use_start_end_token", {"false"}, "self-supervised training reads no text");
  t.accept("trim_silence", {"false"}, "trimming silence is not supported");
  t.accept("augmentor", {"null"},
           "NeMo's perturbations are not supported; see batch_augmentor, min_gain_db, noise_manifest");
  t.accept("concat_sampling_seed", {"null"}, "the seed of the data set is used");
  t.accept("quadratic_duration", {"null"},
           "batches are bounded by padded length, which already makes long clips dearer");
  t.accept("use_lhotse", {}, "buckets and batches by duration need no other loader here");
  t.accept("bucket_buffer_size", {}, "buckets are drawn from the whole data set");
  t.accept("shuffle_buffer_size", {}, "the whole data set is shuffled");
  t.accept("num_cuts_for_bins_estimate", {}, "bins are exact quantiles");
  t.accept("labels", {"null"}, "self-supervised training reads no text");
  t.accept("parser", {"null"}, "self-supervised training reads no text");
  t.accept("normalize_db", {"null"}, "loudness normalisation is not supported");
}

}  // namespace

Table DatasetConfig::table(bool training) {
  Table t;
  t.about(training ? "The training data." : "The validation data.");
  add_source_rows(t);
  add_batch_rows(t, training);
  add_bucket_rows(t);
  add_concat_rows(t);
  add_worker_rows(t, training);
  AudioOptions::add_rows(t);
  ImageOptions::add_rows(t);
  add_cache_rows(t);
  accept_foreign_keys(t);
  if (!training) t.not_tuned();
  return t;
}

}  // namespace redline::data
