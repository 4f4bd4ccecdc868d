#include "train/optim/ema.h"

#include <fmt/format.h>

#include "core/error.h"
#include "train/files/safetensors.h"

namespace redline::train {

using config::Effect;

config::Table<EmaConfig> EmaConfig::fields() {
  using T = EmaConfig;
  config::Table<T> table;
  table.about("Exponential moving average of parameters and buffers; no warm-up, starts as the initial weights.");
  table.add("enable", &T::enable, "Keep an average.").effect(Effect::Optimisation).alias(".model_ema");
  table.add("decay", &T::decay, "Weight of the past.").range(0, 1).alias(".model_ema_decay");
  table.add("every_n_steps", &T::every_n_steps, "Average every so many steps.").unit("steps").at_least(1);
  table.add("validate_original_weights", &T::validate_original_weights,
            "Validate with the live weights instead of the average.");
  table.accept("cpu_offload", {"false"}, "the average lives where the weights live");
  return table;
}

Ema::Ema(const EmaConfig& config, NamedTensors model) : config_(config), model_(std::move(model)) {
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

void Ema::update(int64_t step) {
  if (step % config_.every_n_steps != 0) return;
  const torch::NoGradGuard no_grad;
  at::_foreach_lerp_(average_float_, live_float_, 1.0 - config_.decay);
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
      throw CheckpointError(other_shape("average (EMA) of", name, found->second, average));
    average.copy_(found->second);
  }
}

}  // namespace redline::train
