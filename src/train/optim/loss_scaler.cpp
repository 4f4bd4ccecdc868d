#include "train/optim/loss_scaler.h"

#include <cmath>

namespace redline::train {

LossScaler::LossScaler(const LossScalerSettings& settings)
    : settings_(settings), scale_(static_cast<float>(settings.init_scale)) {}

void LossScaler::update(bool found_non_finite) {
  if (!settings_.enabled || !settings_.dynamic) return;
  if (found_non_finite) {
    scale_ = static_cast<float>(static_cast<double>(scale_) * settings_.backoff_factor);
    growth_tracker_ = 0;
    return;
  }
  if (++growth_tracker_ < settings_.growth_interval) return;
  growth_tracker_ = 0;
  const auto grown = static_cast<float>(static_cast<double>(scale_) * settings_.growth_factor);
  if (std::isfinite(grown)) scale_ = grown;
}

void LossScaler::restore(double scale, int64_t growth_tracker) {
  if (!settings_.enabled || !settings_.dynamic) return;  // a static scale is the config's
  scale_ = static_cast<float>(scale);
  growth_tracker_ = growth_tracker;
}

}  // namespace redline::train
