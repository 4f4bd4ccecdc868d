// Stops when a metric has not improved for a number of validations (Lightning's EarlyStopping). Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "config/fields.h"

namespace redline::train {

// The options `exp_manager.early_stopping_callback_params`.
struct EarlyStoppingConfig {
  config::Auto<std::string> monitor;  // auto: the task's (TaskConfig::monitor_metric)
  std::string mode = "min";
  double min_delta = 0.001;
  int64_t patience = 10;
  std::optional<double> stopping_threshold;  // good enough: stop
  static config::Table<EarlyStoppingConfig> fields();
};

class EarlyStopping {
 public:
  explicit EarlyStopping(const EarlyStoppingConfig& config) : config_(config) {}
  // After a validation; a sentence why to stop, or nothing. A metric that is not finite counts as no improvement.
  std::optional<std::string> update(double metric);

  const std::string& metric() const { return config_.monitor.value(); }
  std::optional<double> best() const { return best_; }
  int64_t waited() const { return waited_; }
  void restore(std::optional<double> best, int64_t waited) {
    best_ = best;
    waited_ = waited;
  }

 private:
  EarlyStoppingConfig config_;
  std::optional<double> best_;
  int64_t waited_ = 0;
};

}  // namespace redline::train
