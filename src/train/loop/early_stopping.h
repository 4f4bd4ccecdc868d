// Stops when a metric has not improved for a number of validations (Lightning's EarlyStopping). Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace redline::train {

struct EarlyStoppingSettings {
  bool lower_is_better = true;
  double min_delta = 0.0;
  int64_t patience = 3;
  std::optional<double> stopping_threshold;  // good enough: stop
};

class EarlyStopping {
 public:
  explicit EarlyStopping(const EarlyStoppingSettings& settings) : settings_(settings) {}
  // After a validation; a sentence why to stop, or nothing. A metric that is not finite counts as no improvement.
  std::optional<std::string> update(double metric);

  std::optional<double> best() const { return best_; }
  int64_t waited() const { return waited_; }
  void restore(std::optional<double> best, int64_t waited) {
    best_ = best;
    waited_ = waited;
  }

 private:
  EarlyStoppingSettings settings_;
  std::optional<double> best_;
  int64_t waited_ = 0;
};

}  // namespace redline::train
