// The official splits of nuScenes' scenes, by name. The lists are facts of the data set (nuscenes-devkit,
// utils/splits.py); here as ranges of scene numbers.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace redline::data::nuscenes {

// Whether a scene ("scene-0061") belongs to `split`: train, val, mini_train, mini_val, all, or scene names with commas.
// Throws ConfigError for an unknown split, with the known ones.
std::function<bool(std::string_view scene)> scenes_of(const std::string& split);

}  // namespace redline::data::nuscenes
