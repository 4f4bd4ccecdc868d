#include "app/run_names.h"

#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "measure/run_glance.h"

namespace redline::app {

namespace {

std::filesystem::path newest_of(const std::vector<std::filesystem::path>& runs) {
  const auto written = [](const std::filesystem::path& run) {
    std::error_code ignored;
    return std::filesystem::last_write_time(run / "steps.bin", ignored);
  };
  return *std::max_element(runs.begin(), runs.end(),
                           [&](const auto& a, const auto& b) { return written(a) < written(b); });
}

}  // namespace

std::filesystem::path find_run(const std::string& word) {
  for (const std::filesystem::path& place : {std::filesystem::path(word), std::filesystem::path("runs") / word})
    if (const auto runs = measure::find_runs(place, 1); !runs.empty()) return newest_of(runs);
  std::error_code ignored;
  if (std::filesystem::exists(word, ignored)) return word;  // whoever reads it says what it is not
  std::vector<std::string> names;
  for (const auto& run : measure::find_runs("runs")) {
    names.push_back(run.lexically_relative("runs").string());
    names.push_back(run.lexically_relative("runs").begin()->string());
  }
  const auto near = did_you_mean(word, names);
  throw DataError("There is no run '" + printable(word) + "' here or in runs/" +
                  (near ? "; did you mean '" + printable(*near) + "'?" : "; `redline runs` lists them."));
}

std::filesystem::path find_run_or_weights(const std::string& word) {
  const std::string ending = to_lower(std::filesystem::path(word).extension().string());
  for (const char* weights : {".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".nemo", ".tar"})
    if (ending == weights) return word;
  std::error_code ignored;
  return std::filesystem::is_regular_file(word, ignored) ? std::filesystem::path(word) : find_run(word);
}

}  // namespace redline::app
