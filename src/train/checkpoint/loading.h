// From generations on disk to state in memory. Nothing here changes anything on disk: eval, predict, verify, report and
// weight loading read other people's runs, also while these train.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "train/checkpoint/block_reader.h"
#include "train/checkpoint/store.h"

namespace redline::train {

using OnDamage = std::function<void(const std::filesystem::path&, const Damage&)>;

// The newest generation that verifies; nullopt when there is none. on_damage is told about each newer one that does
// not, newest first. Throws DiskError when one could not be read for reasons that are no damage (is_damage), and
// CheckpointError when one is of a version we do not know.
std::optional<LoadedCheckpoint> newest_whole(const std::filesystem::path& directory, const OnDamage& on_damage);
// The same, but CheckpointError when there are only damaged ones.
std::optional<LoadedCheckpoint> load_newest_usable(const std::filesystem::path& directory, const OnDamage& on_damage);

// A generation, a weights file, or (newest usable, with a warning for each damaged one) a run or checkpoints directory.
LoadedCheckpoint load_checkpoint(const std::filesystem::path& path);

// Generations whose manifest can be read, oldest first, with their values of the metric `monitor`; contents are not
// verified. Throws DiskError.
std::vector<GenerationInfo> list_generations(const std::filesystem::path& directory, const std::string& monitor);
// The best by that metric among them; nullopt when none has it. `mode`: min or max.
std::optional<GenerationInfo> best_generation(const std::filesystem::path& directory, const std::string& monitor,
                                              const std::string& mode);

// The generation of that step, whole. `asked`: what the user wrote, for the sentence that says which steps there are.
LoadedCheckpoint load_step(const std::filesystem::path& directory, int64_t step, const std::string& asked);

// "step-00000003: …/model.safetensors, block 0 (…): …; step-00000002: …. Also there: quarantine-step-00000001, …", for
// the sentence of somebody who has found no usable one.
std::string what_is_left(const std::filesystem::path& directory,
                         const std::vector<std::pair<std::filesystem::path, Damage>>& damaged);

}  // namespace redline::train
