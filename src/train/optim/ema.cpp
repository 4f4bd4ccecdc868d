#include "train/optim/ema.h"

#include <fmt/format.h>

#include "core/error.h"

namespace redline::train {

Ema::Ema(double decay, NamedTensors model) : decay_(decay), model_(std::move(model)) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, live] : model_) {
    torch::Tensor average = live.detach().clone(at::MemoryFormat::Preserve);
    if (live.is_floating_point()) {
      live_float_.push_back(live);
      average_float_.push_back(average);
    } else {
      copied_.emplace_back(average, live);
    }
    averages_.emplace_back(name, std::move(average));
  }
}

void Ema::update() {
  const torch::NoGradGuard no_grad;
  at::_foreach_lerp_(average_float_, live_float_, 1.0 - decay_);
  for (auto& [average, live] : copied_) average.copy_(live);
}

void Ema::swap() {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < model_.size(); ++i) {
    const torch::Tensor kept = model_[i].second.detach().clone(at::MemoryFormat::Preserve);
    model_[i].second.copy_(averages_[i].second);
    averages_[i].second.copy_(kept);
  }
}

void Ema::load(const std::map<std::string, torch::Tensor>& averages) {
  const torch::NoGradGuard no_grad;
  for (auto& [name, average] : averages_) {
    const auto found = averages.find(name);
    if (found == averages.end())
      throw CheckpointError(fmt::format("The checkpoint has no average (EMA) of '{}'.", name));
    if (found->second.sizes() != average.sizes())
      throw CheckpointError(
          fmt::format("The checkpoint's average (EMA) of '{}' has another shape than this model's.", name));
    average.copy_(found->second);
  }
}

}  // namespace redline::train
