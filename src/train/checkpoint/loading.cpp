// See loading.h. Every byte is checked against the manifest on its way into the tensors.
#include "train/checkpoint/loading.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "train/checkpoint/generation.h"
#include "train/checkpoint/snapshot.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNamesShown = 8;

bool is_there(const fs::path& path) {
  std::error_code code;
  return fs::exists(path, code) || code;
}

LoadedCheckpoint load_generation(const fs::path& path) {
  const Manifest manifest = read_manifest(path);
  for (const char* name : {kModelFile, kOptimizerFile, kStateFile}) {
    if (manifest.find(name) == nullptr)
      throw DamagedError({path / kManifestName, 0, std::string("it does not list ") + name});
  }
  LoadedCheckpoint loaded;
  loaded.info = {path, manifest.step, manifest.metric};
  loaded.state.model = read_named_tensors(path / kModelFile, manifest.find(kModelFile)->crc32c);
  loaded.state.optimizer = read_named_tensors(path / kOptimizerFile, manifest.find(kOptimizerFile)->crc32c);
  const FileDigest& digest = *manifest.find(kStateFile);
  loaded.state.state_json.resize(digest.bytes);
  const FileSegment segment{0, std::as_writable_bytes(std::span(loaded.state.state_json))};
  if (digest.bytes != 0) read_segments(InputFile(path / kStateFile), {&segment, 1}, digest.crc32c);
  return loaded;
}

LoadedCheckpoint load_weights_file(const fs::path& path) {
  LoadedCheckpoint loaded;
  loaded.info.path = path;
  loaded.state.model = read_named_tensors(path);
  return loaded;
}

}  // namespace

std::optional<LoadedCheckpoint> newest_whole(const fs::path& directory, const OnDamage& on_damage) {
  const std::vector<fs::path> paths = generation_paths(directory);
  for (size_t i = paths.size(); i-- > 0;) {
    // One that is gone since the look into the directory was let go by the run that is being read.
    try {
      return load_generation(paths[i]);
    } catch (const DamagedError& error) {
      if (is_there(paths[i])) on_damage(paths[i], error.damage());
    } catch (const DiskError&) {
      if (is_there(paths[i])) throw;
    }
  }
  return std::nullopt;
}

std::optional<LoadedCheckpoint> load_newest_usable(const fs::path& directory, const OnDamage& on_damage) {
  std::vector<std::pair<fs::path, Damage>> damaged;
  auto loaded = newest_whole(directory, [&](const fs::path& path, const Damage& damage) {
    damaged.emplace_back(path, damage);
    on_damage(path, damage);
  });
  if (!loaded && !damaged.empty())
    throw CheckpointError("None of the " + std::to_string(damaged.size()) + " checkpoints in '" +
                          printable(directory.string()) + "' can be used. " + what_is_left(directory, damaged) +
                          " Restore one from a copy, or give another path.");
  return loaded;
}

LoadedCheckpoint load_checkpoint(const fs::path& path) {
  std::error_code code;
  if (fs::is_regular_file(path, code)) return load_weights_file(path);
  if (code && !is_damage(code.value())) throw_reading_error(path, code.value());
  if (!fs::is_directory(path, code)) {
    throw CheckpointError("There is no checkpoint at '" + printable(path.string()) +
                          "'; give a run directory, a step-… directory or a .safetensors file.");
  }
  if (generation_step(path.lexically_normal().filename().string()) || fs::exists(path / kManifestName, code))
    return load_generation(path);
  const fs::path directory = fs::is_directory(path / "checkpoints", code) ? path / "checkpoints" : path;
  auto loaded = load_newest_usable(directory, [](const fs::path&, const Damage& damage) {
    log_warning("Damaged checkpoint: " + damage.sentence() + ". The generation before it is used.");
  });
  if (loaded) return std::move(*loaded);
  throw CheckpointError("There are no checkpoints in '" + printable(directory.string()) +
                        "'; train first, or give another path.");
}

std::vector<GenerationInfo> list_generations(const fs::path& directory, const std::string& monitor) {
  std::vector<GenerationInfo> list;
  for (const fs::path& path : generation_paths(directory)) {
    try {
      const Manifest manifest = read_manifest(path);
      // Values of another metric (the option changed) do not compare.
      list.push_back({path, manifest.step, manifest.monitor == monitor ? manifest.metric : std::nullopt});
    } catch (const CheckpointError&) {  // damaged or of another version: named when someone tries to load it
    }
  }
  return list;
}

LoadedCheckpoint load_step(const fs::path& directory, int64_t step, const std::string& asked) {
  std::vector<std::string> steps;
  for (const GenerationInfo& one : list_generations(directory, "val_loss")) {
    if (one.step == step) return load_checkpoint(one.path);
    steps.push_back(std::to_string(one.step));
  }
  throw CheckpointError(fmt::format("{}: the run has no checkpoint of that step; there are {}.", asked,
                                    steps.empty() ? "none" : join(steps, ", ")));
}

std::optional<GenerationInfo> best_generation(const fs::path& directory, const std::string& monitor,
                                              const std::string& mode) {
  std::optional<GenerationInfo> best;
  for (const GenerationInfo& info : list_generations(directory, monitor)) {
    if (!info.metric || std::isnan(*info.metric)) continue;
    if (!best || (mode == "min" ? *info.metric < *best->metric : *info.metric > *best->metric)) best = info;
  }
  return best;
}

std::string what_is_left(const fs::path& directory, const std::vector<std::pair<fs::path, Damage>>& damaged) {
  std::vector<std::string> broken;
  for (const auto& [path, damage] : damaged) {
    if (broken.size() == kNamesShown) break;
    broken.push_back(printable(path.filename().string()) + " is damaged (" + damage.sentence() + ")");
  }
  std::string text = broken.empty() ? "There is no step-… in it" : join(broken, "; ");
  if (damaged.size() > broken.size()) text += " and " + std::to_string(damaged.size() - broken.size()) + " more";
  text += ".";
  std::vector<std::string> others = remains_of_generations(directory);
  if (others.empty()) return text;
  const size_t count = others.size();
  others.resize(std::min(count, kNamesShown));
  for (std::string& name : others) name = printable(name);
  text += " Also there: " + join(others, ", ");
  if (count > others.size()) text += " and " + std::to_string(count - others.size()) + " more";
  return text + " (redline verify and --resume take the path of one of them).";
}

}  // namespace redline::train
