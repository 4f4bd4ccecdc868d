// A manifest's audio packed into tars, in NeMo's layout (audio_0.tar ..., tarred_audio_manifest.json,
// sharded_manifests/, metadata.yaml) or WebDataset's (shard-000000.tar ... with KEY.flac and KEY.json). Files go in as
// they are, nothing is re-encoded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace redline::data {

enum class ShardFormat { Nemo, WebDataset };

struct ShardOptions {
  ShardFormat format = ShardFormat::Nemo;
  int64_t num_shards = 8;
  bool shuffle = false;
  uint64_t seed = 0;
  bool allow_absolute = true;
};

struct ShardResult {
  int64_t num_shards = 0, num_entries = 0, num_files = 0;
  int64_t num_dropped = 0;  // NeMo's layout keeps shards equal: the remainder is left out
  uint64_t num_bytes = 0;
};

// Throws ConfigError for fewer entries than shards, DataError for a file that cannot be read, DiskError when writing
// fails.
ShardResult write_shards(const std::vector<std::filesystem::path>& manifests, const std::filesystem::path& out,
                         const ShardOptions& options);

// "dir/a.b.wav" -> "dir_a_b.wav": slashes and dots of the stem become underscores, as NeMo's converter does.
std::string flat_name(std::string_view file);

}  // namespace redline::data
