#include "train/loop/looking.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/time.h"
#include "train/signals.h"

namespace redline::train {

namespace {

using measure::Phase;
using measure::PhaseScope;

ValidationSettings validation_settings(const LoopParts& parts, const LoopSettings& s, Precision precision,
                                       const CountOrShare& limit) {
  return {s.seed, precision, s.device, limit, [] { return StopFlag::requested(); }, parts.agreement};
}

// The averaged weights in place of the live ones, for its life.
class AveragedWeights {
 public:
  explicit AveragedWeights(Ema* ema) : ema_(ema) {
    if (ema_ != nullptr) ema_->swap();
  }
  ~AveragedWeights() {
    if (ema_ != nullptr) ema_->swap();
  }
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  Ema* ema_;
};

}  // namespace

void Looking::try_validation() {
  CountOrShare limit;
  if (settings_.sanity_batches > 0) limit.count = settings_.sanity_batches;
  train::validate(parts_.task, *parts_.validation,
                  validation_settings(parts_, settings_, state_.precision.precision(), limit), memory_, parts_.stream);
}

ValidationResult Looking::measure(Precision precision, const CountOrShare& limit) {
  return measure(*parts_.validation, precision, limit);
}

ValidationResult Looking::measure(data::Loader& loader, Precision precision, const CountOrShare& limit) {
  const bool averaged = state_.ema && !state_.ema->config().validate_original_weights;
  const AveragedWeights weights(averaged ? state_.ema.get() : nullptr);
  return train::validate(parts_.task, loader, validation_settings(parts_, settings_, precision, limit), memory_,
                         parts_.stream);
}

bool Looking::validate() {
  const PhaseScope scope(clock_, Phase::Validate);
  const int64_t begin = now_ns();
  const ValidationResult result = measure(state_.precision.precision(), settings_.limit_val_batches);
  state_.at.pending_validation = !result.complete && parts_.agreement->stop_signal() != 0;
  if (!result.complete) {
    if (!state_.at.pending_validation) log_warning_once("The validation data makes no batch: nothing was validated.");
    return false;
  }
  state_.at.last_validation = result.metrics;
  LogValues values{state_.at.step, result.metrics};
  for (const auto& [name, loader] : parts_.more_validation) {
    const ValidationResult further = measure(*loader, state_.precision.precision(), settings_.limit_val_batches);
    if (!further.complete) break;  // stopped: the main set's numbers stay
    for (const auto& [metric, value] : further.metrics) values.metrics[metric + "/" + name] = value;
  }
  values.metrics["validation_seconds"] = seconds_between(begin, now_ns());
  parts_.observer->validated(values);
  if (state_.early) watch(result.metrics);
  return true;
}

void Looking::watch(const std::map<std::string, double>& metrics) {
  const std::string& name = state_.early->metric();
  const auto metric = metrics.find(name);
  if (metric == metrics.end()) {
    std::vector<std::string> names;
    for (const auto& [known, value] : metrics) names.push_back(known);
    throw ConfigError(fmt::format("Early stopping watches '{}', which no validation gives; this one gave {}.", name,
                                  join(names, ", ")));
  }
  if (const auto why = state_.early->update(metric->second))
    early_stop_ = fmt::format("{} at step {}: {}", name, state_.at.step, *why);
}

void Looking::monitor(bool plot) {
  const PhaseScope scope(clock_, Phase::Monitor);
  LogValues values{state_.at.step, state_.monitor->update(state_.at.step)};
  std::vector<std::string> plots;
  if (plot) plots = draw_plots();
  parts_.observer->monitored(values, plots);
}

// A picture that cannot be written is skipped: the next one shows what it would have shown.
std::vector<std::string> Looking::draw_plots() {
  std::string problem;
  try {
    std::filesystem::create_directories(settings_.plot_directory);
    std::vector<std::string> plots = state_.monitor->plot(state_.at.step, settings_.plot_directory);
    plots_fail_ = false;
    return plots;
  } catch (const DiskError& error) {
    problem = error.what();
  } catch (const std::filesystem::filesystem_error& error) {
    problem = error.what();
  }
  if (!plots_fail_) log_warning(fmt::format("The monitor's plots of step {} are skipped: {}", state_.at.step, problem));
  plots_fail_ = true;
  return {};
}

}  // namespace redline::train
