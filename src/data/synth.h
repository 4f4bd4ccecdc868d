// Generated data sets, so that demos, tests and benchmarks need no download: speech-like audio, integer sequences,
// images. Every item is a function of (seed, item number) alone, so the same options give the same bytes with any
// number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "config/fields.h"

namespace redline::data {

// One table for all kinds (train_ds.synth in a recipe, `redline data synth` on the command line); each kind reads its
// part.
struct SynthConfig {
  std::string kind = "speech";  // speech, sequences, images, nuscenes
  int64_t num = 1000;
  int64_t num_validation = -1;  // -1: a tenth, at least 1
  int64_t seed = 0;
  int num_threads = 0;          // 0: all CPUs
  std::string format = "auto";  // speech: flac, wav; images: jpeg, png; auto: the first

  // speech
  int sample_rate = 16000;
  double median_seconds = 4.0, sigma = 0.5;  // log-normal durations
  double min_seconds = 1.2, max_seconds = 16.7;
  int64_t num_noise = -1;  // -1: a tenth, at least 1
  // sequences
  double median_length = 90.0, length_sigma = 0.6;
  int64_t min_length = 4, max_length = 512;
  int vocab_size = 64;  // the first three ids are left free for padding, start and end
  int64_t rows_per_file = 500'000, rows_per_group = 20'000;
  // sequences and images
  int num_classes = 8;
  // images
  int width = 96, height = 96;
  int quality = 90;    // of JPEG
  bool index = false;  // also write index.jsonl beside the class folders
  // nuscenes
  int camera_width = 1600, camera_height = 900;

  static config::Table<SynthConfig> fields();
  // Throws ConfigError for values that contradict each other.
  void check() const;
};

// What was written; paths that do not apply are empty.
struct SynthResult {
  std::filesystem::path train, validation,
      noise;  // manifests (speech), Parquet folders (sequences), image folders (images)
  int64_t num_items = 0;
  uint64_t num_bytes = 0;
};

// Into `out`: made when missing, empty, or an earlier set, so that a manifest of the user is never written over. Throws
// ConfigError for anything else there, an unknown kind or contradictory options, DiskError when writing fails.
SynthResult synthesize(const SynthConfig& config, const std::filesystem::path& out);

// Generates once: a folder below `cache_root` named by kind and a hash of the options, made under a temporary name and
// renamed when whole; a finished one is reused. This is what train_ds.synth does.
SynthResult synthesize_cached(const SynthConfig& config, const std::filesystem::path& cache_root);

}  // namespace redline::data
