// Loss scaling as PyTorch's GradScaler does it: a plain state machine over "did this step overflow". Static scales
// (mmcv's loss_scale: 512.) skip overflowing steps too but never move.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/fields.h"

namespace redline::train {

// The options `trainer.amp`.
struct AmpConfig {
  std::optional<std::string> loss_scale;  // "dynamic" or a number
  double init_scale = 65536.0, growth_factor = 2.0, backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  static config::Table<AmpConfig> fields();
};

class LossScaler {
 public:
  LossScaler() = default;  // none: the scale is 1
  // Throws ConfigError on a loss_scale that is neither "dynamic" nor a number above 0.
  LossScaler(const AmpConfig& config, bool enabled);

  bool enabled() const { return enabled_; }
  bool dynamic() const { return dynamic_; }
  // 1 when disabled.
  double scale() const { return enabled_ ? static_cast<double>(scale_) : 1.0; }
  int64_t growth_tracker() const { return growth_tracker_; }

  // Once per optimiser step that ran in fp16. Growth stops before the scale leaves float32.
  void update(bool found_non_finite);
  void restore(double scale, int64_t growth_tracker);

 private:
  AmpConfig config_;
  bool enabled_ = false, dynamic_ = true;
  float scale_ = 1.0f;
  int64_t growth_tracker_ = 0;
};

}  // namespace redline::train
