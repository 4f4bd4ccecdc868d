#include "data/shard_writer.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/strings.h"
#include "data/audio/manifest.h"
#include "data/files/path_guard.h"
#include "data/plan/shuffle.h"
#include "data/tar/tar_writer.h"

namespace redline::data {

namespace {

using Json = nlohmann::ordered_json;

struct Item {
  size_t manifest = 0;
  Json line;
  std::string file;
  double offset = 0.0;
};

std::vector<Item> read_items(const std::vector<std::filesystem::path>& manifests) {
  std::vector<Item> items;
  for (size_t m = 0; m < manifests.size(); ++m) {
    const std::string text = Manifest::read_text(manifests[m]);
    const Manifest checked = Manifest::parse(text, manifests[m].string());  // says what is wrong, with the line
    size_t entry = 0;
    for (std::string_view rest = text; !rest.empty() && entry < checked.size();) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view row = rest.substr(0, end);
      rest.remove_prefix(std::min(rest.size(), end + 1));
      if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const size_t bom = row.starts_with("\xEF\xBB\xBF") ? 3 : 0;
      items.push_back({m, Json::parse(row.substr(bom)), std::string(checked.file(entry)), checked.offset(entry)});
      ++entry;
    }
  }
  return items;
}

std::string extension_of(std::string_view file) {
  const size_t dot = file.rfind('.'), slash = file.rfind('/');
  if (dot == std::string_view::npos || (slash != std::string_view::npos && dot < slash)) return "";
  return std::string(file.substr(dot));
}

// One tar and its part of the manifest.
class ShardFile {
 public:
  ShardFile(const std::filesystem::path& path, ShardFormat format)
      : tar_(posix_file_ops().create(path)), format_(format) {}

  void add(Item& item, int64_t shard, const PathGuard& guard, ShardResult& result) {
    const std::string extension = extension_of(item.file), flat = flat_name(item.file);
    const std::string stem = flat.substr(0, flat.size() - extension.size());
    const int64_t seen = seen_[item.file]++;
    if (format_ == ShardFormat::WebDataset) {
      if (item.offset > 0.0 || seen > 0) {
        throw DataError("'" + printable(item.file) +
                        "' is used in segments; WebDataset tars hold whole clips. Use --format nemo.");
      }
      add_file(item.file, flat, guard, result);
      const std::string meta = item.line.dump();
      tar_.add(stem + ".json", std::as_bytes(std::span(meta)));
      return;
    }
    if (seen == 0) add_file(item.file, flat, guard, result);
    item.line.erase("audio_filename");
    item.line["audio_filepath"] = seen == 0 ? flat : stem + "-sub" + std::to_string(seen) + extension;
    item.line["shard_id"] = shard;
    manifest_ += item.line.dump() + "\n";
  }
  const std::string& finish() {
    tar_.finish();
    return manifest_;
  }

 private:
  void add_file(const std::string& file, const std::string& name, const PathGuard& guard, ShardResult& result) {
    OpenResult opened = guard.open(file);
    if (const auto* failure = std::get_if<OpenFailure>(&opened)) throw DataError(failure->reason);
    if (!std::get<DataFile>(opened).read_all(buffer_))
      throw DataError("'" + printable(file) + "' could not be read to its end.");
    tar_.add(name, buffer_);
    ++result.num_files;
    result.num_bytes += buffer_.size();
  }

  TarWriter tar_;
  ShardFormat format_;
  std::string manifest_;
  std::unordered_map<std::string, int64_t> seen_;
  std::vector<std::byte> buffer_;
};

std::string shard_name(ShardFormat format, int64_t shard) {
  if (format == ShardFormat::Nemo) return "audio_" + std::to_string(shard) + ".tar";
  std::string digits = std::to_string(shard);
  return "shard-" + std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') + digits + ".tar";
}

}  // namespace

std::string flat_name(std::string_view file) {
  const std::string extension = extension_of(file);
  std::string name(file.substr(0, file.size() - extension.size()));
  while (name.starts_with('/')) name.erase(0, 1);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == '.'; }, '_');
  return name + extension;
}

ShardResult write_shards(const std::vector<std::filesystem::path>& manifests, const std::filesystem::path& out,
                         const ShardOptions& options) {
  std::vector<Item> items = read_items(manifests);
  if (options.num_shards < 1 || static_cast<int64_t>(items.size()) < options.num_shards) {
    throw ConfigError("The manifest has " + std::to_string(items.size()) +
                      " entries; --num-shards must be between 1 and that, found " + std::to_string(options.num_shards) +
                      ".");
  }
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  if (options.shuffle) shuffle(std::span(order), PlanStream(options.seed, 0, 0, PlanDraw::Samples));
  std::vector<std::unique_ptr<PathGuard>> guards;
  for (const auto& path : manifests) {
    guards.push_back(
        std::make_unique<PathGuard>(std::filesystem::absolute(path).parent_path(), options.allow_absolute));
  }
  const bool nemo = options.format == ShardFormat::Nemo;
  posix_file_ops().make_directory(nemo ? out / "sharded_manifests" : out);
  ShardResult result;
  result.num_shards = options.num_shards;
  const size_t shards = static_cast<size_t>(options.num_shards), equal = items.size() / shards * shards;
  const size_t used = nemo ? equal : items.size();
  result.num_dropped = static_cast<int64_t>(items.size() - used);
  std::string whole;
  for (size_t s = 0; s < shards; ++s) {
    const int64_t shard = static_cast<int64_t>(s);
    ShardFile file(out / shard_name(options.format, shard), options.format);
    for (size_t i = used * s / shards; i < used * (s + 1) / shards; ++i) {
      Item& item = items[order[i]];
      file.add(item, shard, *guards[item.manifest], result);
      ++result.num_entries;
    }
    const std::string& part = file.finish();
    if (nemo) write_file_atomic(out / "sharded_manifests" / ("manifest_" + std::to_string(shard) + ".json"), part);
    whole += part;
  }
  if (nemo) {
    write_file_atomic(out / "tarred_audio_manifest.json", whole);
    write_file_atomic(out / "metadata.yaml", "num_shards: " + std::to_string(shards) +
                                                 "\nnum_samples_per_shard: " + std::to_string(equal / shards) +
                                                 "\nshuffle: " + (options.shuffle ? "true" : "false") +
                                                 "\nshuffle_seed: " + std::to_string(options.seed) + "\nversion: 1\n");
  }
  return result;
}

}  // namespace redline::data
