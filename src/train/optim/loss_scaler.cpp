#include "train/optim/loss_scaler.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "core/strings.h"

namespace redline::train {

config::Table<AmpConfig> AmpConfig::fields() {
  using T = AmpConfig;
  config::Table<T> table;
  table.about("Loss scaling under 16-mixed, as PyTorch's GradScaler does it.");
  table
      .add("loss_scale", &T::loss_scale,
           "dynamic, or a fixed number such as 512 (steps that overflow are still dropped).")
      .alias(".fp16.loss_scale")
      .alias(".optimizer_config.loss_scale");
  table.add("init_scale", &T::init_scale, "Dynamic scale at the start.").above(0);
  table.add("growth_factor", &T::growth_factor, "Grows by this after growth_interval clean steps.").above(1);
  table.add("backoff_factor", &T::backoff_factor, "Shrinks by this on overflow.").above(0).below(1);
  table.add("growth_interval", &T::growth_interval, "Clean steps before the scale grows.")
      .cadence(config::Counts::Steps)
      .at_least(1);
  return table;
}

LossScaler::LossScaler(const AmpConfig& config, bool enabled)
    : config_(config), enabled_(enabled), scale_(static_cast<float>(config.init_scale)) {
  if (!config.loss_scale || *config.loss_scale == "dynamic") return;
  const auto number = parse_double(*config.loss_scale);
  if (!number || !(*number > 0))
    throw ConfigError(fmt::format("trainer.amp.loss_scale is '{}'; give 'dynamic' or a positive number such as 512.",
                                  printable(*config.loss_scale)));
  dynamic_ = false;
  scale_ = static_cast<float>(*number);
}

void LossScaler::update(bool found_non_finite) {
  if (!enabled_ || !dynamic_) return;
  if (found_non_finite) {
    scale_ = static_cast<float>(static_cast<double>(scale_) * config_.backoff_factor);
    growth_tracker_ = 0;
    return;
  }
  if (++growth_tracker_ < config_.growth_interval) return;
  growth_tracker_ = 0;
  const auto grown = static_cast<float>(static_cast<double>(scale_) * config_.growth_factor);
  if (std::isfinite(grown)) scale_ = grown;
}

void LossScaler::restore(double scale, int64_t growth_tracker) {
  if (!enabled_ || !dynamic_) return;  // a static scale is the config's
  scale_ = static_cast<float>(scale);
  growth_tracker_ = growth_tracker;
}

}  // namespace redline::train
