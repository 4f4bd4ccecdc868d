// Loss scaling as PyTorch's GradScaler does it: a plain state machine over "did this step overflow". Static scales
// (mmcv's loss_scale: 512.) skip overflowing steps too but never move.
#pragma once

#include <cstdint>

namespace redline::train {

struct LossScalerSettings {
  bool enabled = false;
  bool dynamic = true;
  double init_scale = 65536.0, growth_factor = 2.0, backoff_factor = 0.5;
  int64_t growth_interval = 2000;
};

class LossScaler {
 public:
  LossScaler() = default;
  explicit LossScaler(const LossScalerSettings& settings);

  bool enabled() const { return settings_.enabled; }
  // 1 when disabled.
  double scale() const { return settings_.enabled ? static_cast<double>(scale_) : 1.0; }
  int64_t growth_tracker() const { return growth_tracker_; }
  const LossScalerSettings& settings() const { return settings_; }

  // Once per optimiser step that ran in fp16. Growth stops before the scale leaves float32.
  void update(bool found_non_finite);
  void restore(double scale, int64_t growth_tracker);

 private:
  LossScalerSettings settings_;
  float scale_ = 1.0f;
  int64_t growth_tracker_ = 0;
};

}  // namespace redline::train
