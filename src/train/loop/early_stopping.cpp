#include "train/loop/early_stopping.h"

#include <fmt/format.h>

#include <cmath>

#include "core/strings.h"

namespace redline::train {

std::optional<std::string> EarlyStopping::update(double metric) {
  const double sign = settings_.lower_is_better ? -1.0 : 1.0;
  const auto better = [&](double a, double b) { return sign * a > sign * b; };
  if (std::isfinite(metric)) {
    if (settings_.stopping_threshold && better(metric, *settings_.stopping_threshold))
      return fmt::format("it reached {}, beyond the threshold {}", format_double(metric),
                         format_double(*settings_.stopping_threshold));
    if (!best_ || better(metric - sign * settings_.min_delta, *best_)) {
      best_ = metric;
      waited_ = 0;
      return std::nullopt;
    }
  }
  if (++waited_ < settings_.patience) return std::nullopt;
  return fmt::format("it has not improved on {} in {} validations", best_ ? format_double(*best_) : "its start",
                     waited_);
}

}  // namespace redline::train
