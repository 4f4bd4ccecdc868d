#include "models/lift_splat/scene_monitor.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/file_ops.h"

namespace redline::models::lift_splat {

void SceneStore::note(const task::Batch& batch, const torch::Tensor& logits, const task::Context& ctx) {
  if (every_ <= 0 || batch.size() == 0) return;
  if (ctx.training()) {
    // The step that is being computed is drawn once it is committed, under the number it then has.
    if ((ctx.step() + 1) % every_ == 0) training_ = copy_scene(batch, logits, 0);
  } else if (!validation_begun_) {
    validation_begun_ = true;
    validation_ = copy_scene(batch, logits, 0);
  }
}

std::vector<std::string> SceneMonitor::plot(int64_t step, const std::string& directory) {
  const std::filesystem::path folder = directory;
  std::filesystem::create_directories(folder);
  std::vector<std::string> files;
  const auto write = [&](const std::string& name, const std::string& bytes) {
    write_file_atomic(folder / name, bytes);
    files.push_back((folder / name).string());
  };
  const auto draw = [&](const std::optional<SceneView>& scene, const char* part, const char* word) {
    if (!scene) return;
    write(fmt::format("grid_{}.png", part), grid_png(*scene, options_, fmt::format("{} sample, step {}", word, step)));
    write(fmt::format("cameras_{}.png", part), cameras_png(*scene, fmt::format("{} sample, step {}", word, step)));
  };
  draw(store_->training(), "train", "Training");
  draw(store_->validation(), "val", "Validation");
  return files;
}

}  // namespace redline::models::lift_splat
