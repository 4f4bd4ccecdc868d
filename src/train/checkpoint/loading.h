// From generations on disk to state in memory.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "train/checkpoint/block_reader.h"
#include "train/checkpoint/store.h"

namespace redline::train {

// The newest generation that verifies. on_damage is told about each one that does not, newest first. nullopt when there
// are none at all, CheckpointError when all are damaged or one is of a version we do not know.
std::optional<LoadedCheckpoint> load_newest_usable(
    const std::filesystem::path& directory,
    const std::function<void(const std::filesystem::path&, const Damage&)>& on_damage);

// A generation, a weights file, or (newest usable, changing nothing on disk) a run or checkpoints directory.
LoadedCheckpoint load_checkpoint(const std::filesystem::path& path);

}  // namespace redline::train
