// Keeps one sample of the training and one of the latest validation, and draws them every so many steps. Costs a copy
// of a sample at the steps that are drawn and at the first batch of a validation; no forward pass is made for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/lift_splat/scene_pictures.h"
#include "task/context.h"
#include "task/task.h"

namespace redline::models::lift_splat {

class SceneStore {
 public:
  explicit SceneStore(int64_t every_steps) : every_(every_steps) {}
  // From loss(): keeps the first sample when it is one to be drawn.
  void note(const task::Batch& batch, const torch::Tensor& logits, const task::Context& ctx);
  void validation_ended() { validation_begun_ = false; }
  const std::optional<SceneView>& training() const { return training_; }
  const std::optional<SceneView>& validation() const { return validation_; }
  int64_t every() const { return every_; }

 private:
  int64_t every_;
  bool validation_begun_ = false;
  std::optional<SceneView> training_, validation_;
};

class SceneMonitor : public task::Monitor {
 public:
  SceneMonitor(Options options, std::shared_ptr<const SceneStore> store)
      : options_(std::move(options)), store_(std::move(store)) {}
  int64_t update_every_steps() const override { return store_->every(); }
  int64_t plot_every_steps() const override { return store_->every(); }
  std::map<std::string, double> update(int64_t) override { return {}; }
  std::vector<std::string> plot(int64_t step, const std::string& directory) override;

 private:
  Options options_;
  std::shared_ptr<const SceneStore> store_;
};

}  // namespace redline::models::lift_splat
