// See loading.h. Every byte is checked against the manifest on its way into the tensors.
#include "train/checkpoint/loading.h"

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "train/checkpoint/generation.h"
#include "train/checkpoint/snapshot.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_none_usable(const fs::path& directory, size_t damaged, const std::string& first) {
  throw CheckpointError("None of the " + std::to_string(damaged) + " checkpoints in '" + printable(directory.string()) +
                        "' can be used; the newest: " + first +
                        ". Restore one from a copy, or start again in a new run directory.");
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

std::optional<LoadedCheckpoint> load_newest_usable(
    const fs::path& directory, const std::function<void(const fs::path&, const Damage&)>& on_damage) {
  const std::vector<fs::path> paths = generation_paths(directory);
  std::string newest_damage;
  for (size_t i = paths.size(); i-- > 0;) {
    Damage damage;
    try {
      return load_generation(paths[i]);
    } catch (const DamagedError& error) {
      damage = error.damage();
    } catch (const DiskError& error) {
      damage = {paths[i], std::nullopt, error.what()};
    }
    if (newest_damage.empty()) newest_damage = damage.sentence();
    on_damage(paths[i], damage);
  }
  if (!paths.empty()) throw_none_usable(directory, paths.size(), newest_damage);
  return std::nullopt;
}

LoadedCheckpoint load_checkpoint(const fs::path& path) {
  std::error_code code;
  if (fs::is_regular_file(path, code)) return load_weights_file(path);
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

}  // namespace redline::train
