#include "train/loop/early_stopping.h"

#include <fmt/format.h>

#include <cmath>

#include "core/strings.h"

namespace redline::train {

config::Table<EarlyStoppingConfig> EarlyStoppingConfig::fields() {
  using T = EarlyStoppingConfig;
  config::Table<T> table;
  table.about("Stop when a metric stops improving.");
  table.add("monitor", &T::monitor,
            "The metric of a validation that is watched; auto: as for checkpoint_callback_params.monitor.");
  table.add("mode", &T::mode, "Whether lower or higher is better.").choices({"min", "max"});
  table.add("min_delta", &T::min_delta, "Smaller improvements do not count.").at_least(0);
  table.add("patience", &T::patience, "Validations without improvement before stopping.").at_least(1);
  table.add("stopping_threshold", &T::stopping_threshold, "Stop at once when the metric is better than this.");
  table.accept("verbose", {}, "it always says why it stopped");
  table.accept("strict", {"true"}, "a metric that does not exist is always an error");
  table.accept("check_finite", {"true"}, "the guards look at every step");
  return table;
}

std::optional<std::string> EarlyStopping::update(double metric) {
  const double sign = config_.mode == "min" ? -1.0 : 1.0;
  const auto better = [&](double a, double b) { return sign * a > sign * b; };
  if (std::isfinite(metric)) {
    if (config_.stopping_threshold && better(metric, *config_.stopping_threshold))
      return fmt::format("it reached {}, beyond the threshold {}", format_double(metric),
                         format_double(*config_.stopping_threshold));
    if (!best_ || better(metric - sign * config_.min_delta, *best_)) {
      best_ = metric;
      waited_ = 0;
      return std::nullopt;
    }
  }
  if (++waited_ < config_.patience) return std::nullopt;
  return fmt::format("it has not improved on {} in {} validations", best_ ? format_double(*best_) : "its start",
                     waited_);
}

}  // namespace redline::train
