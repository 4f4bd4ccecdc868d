// Runs by the names people have for them.
#pragma once

#include <filesystem>
#include <string>

namespace redline::app {

// A run directory; the newest run in a folder of runs; or either below runs/: `report mine` is runs/mine/DATE. Throws
// DataError with the nearest name.
std::filesystem::path find_run(const std::string& word);
// The same where a checkpoint or a file of weights may stand in a run's place.
std::filesystem::path find_run_or_weights(const std::string& word);

}  // namespace redline::app
