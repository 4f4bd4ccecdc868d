#include "train/loop/cadence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/strings.h"

namespace redline::train {

namespace {

// True when a multiple of `every` lies in (before, after].
bool crosses(int64_t before, int64_t after, int64_t every) { return every > 0 && after / every > before / every; }

int64_t validation_interval(const CadenceSettings& s, int64_t steps_per_epoch) {
  return std::max<int64_t>(1, s.val_check_interval.of(steps_per_epoch * s.batches_per_step));
}

// A count longer than an epoch would never be reached within one; it then runs on across epochs (Lightning refuses).
bool counts_across_epochs(const CadenceSettings& s, int64_t steps_per_epoch) {
  if (!s.val_check_interval.count) return false;
  return s.check_val_every_n_epoch == 0 || *s.val_check_interval.count > steps_per_epoch * s.batches_per_step;
}

bool validates(const CadenceSettings& s, const CadencePosition& p) {
  if (!s.validation) return false;
  const int64_t interval = validation_interval(s, p.steps_per_epoch);
  if (counts_across_epochs(s, p.steps_per_epoch))
    return crosses((p.step - 1) * s.batches_per_step, p.step * s.batches_per_step, interval);
  if (s.check_val_every_n_epoch > 0 && (p.epoch + 1) % s.check_val_every_n_epoch != 0) return false;
  return crosses((p.step_in_epoch - 1) * s.batches_per_step, p.step_in_epoch * s.batches_per_step, interval);
}

}  // namespace

int64_t CountOrShare::of(int64_t total) const {
  if (count) return *count;
  if (share <= 0.0 || total <= 0) return 0;
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(share * static_cast<double>(total) + 1e-9)));
}

CountOrShare parse_count_or_share(const std::string& text, const std::string& field) {
  CountOrShare result;
  const auto integer = parse_int(text);
  if (integer && *integer >= 0) {
    result.count = *integer;
    return result;
  }
  const auto real = parse_double(text);
  constexpr double kLargestWhole = 9007199254740992.0;  // 2^53: beyond it, and at infinity, a count means nothing
  if (!real || !(*real >= 0.0) || (*real > 1.0 && (*real != std::floor(*real) || *real > kLargestWhole)))
    throw ConfigError(fmt::format("{} is '{}'; give a whole number of batches, or a share between 0.0 and 1.0.", field,
                                  printable(text)));
  if (*real > 1.0) {  // 2500.0 means 2500
    result.count = static_cast<int64_t>(*real);
  } else {
    result.share = *real;
  }
  return result;
}

void decide_epoch_looks(const CadenceSettings& s, int64_t epochs, CadenceDecision& decision) {
  decision.epoch_monitor = s.monitor_every_epochs > 0 && epochs % s.monitor_every_epochs == 0;
  decision.epoch_plot = s.plot_every_epochs > 0 && epochs % s.plot_every_epochs == 0;
}

CadenceDecision decide_cadence(const CadenceSettings& s, const CadencePosition& p) {
  CadenceDecision decision;
  decision.log = s.log_every_n_steps > 0 && p.step % s.log_every_n_steps == 0;
  decision.monitor = s.monitor_every_steps > 0 && p.step % s.monitor_every_steps == 0;
  decision.plot = s.plot_every_steps > 0 && p.step % s.plot_every_steps == 0;
  decision.epoch_end = p.step_in_epoch >= p.steps_per_epoch;
  decision.validate = validates(s, p);
  if (decision.epoch_end) decide_epoch_looks(s, p.epoch + 1, decision);
  return decision;
}

StopReason decide_stop(const CadenceSettings& s, int64_t step, int64_t epoch, double elapsed_seconds) {
  if (s.max_steps >= 0 && step >= s.max_steps) return StopReason::MaxSteps;
  if (s.max_epochs >= 0 && epoch >= s.max_epochs) return StopReason::MaxEpochs;
  if (s.max_seconds > 0 && elapsed_seconds >= s.max_seconds) return StopReason::MaxTime;
  return StopReason::None;
}

const char* stop_reason_text(StopReason reason) {
  switch (reason) {
    case StopReason::None:
      return "none";
    case StopReason::MaxSteps:
      return "max_steps";
    case StopReason::MaxEpochs:
      return "max_epochs";
    case StopReason::MaxTime:
      return "max_time";
  }
  return "";
}

double validations_per_step(const CadenceSettings& s, int64_t steps_per_epoch) {
  if (!s.validation || steps_per_epoch <= 0) return 0;
  const auto interval = static_cast<double>(validation_interval(s, steps_per_epoch));
  const auto batches = static_cast<double>(s.batches_per_step);
  if (counts_across_epochs(s, steps_per_epoch)) return std::min(1.0, batches / interval);
  const auto steps = static_cast<double>(steps_per_epoch);
  const double of_an_epoch = std::min(steps, std::floor(steps * batches / interval));
  return of_an_epoch / steps / static_cast<double>(std::max<int64_t>(1, s.check_val_every_n_epoch));
}

std::string validation_words(const CadenceSettings& s, int64_t steps_per_epoch) {
  if (!s.validation) return "never";
  const int64_t interval = validation_interval(s, steps_per_epoch);
  const int64_t steps = (interval - 1) / s.batches_per_step + 1;
  if (counts_across_epochs(s, steps_per_epoch)) return fmt::format("every {} steps, counted across epochs", steps);
  const std::string epochs =
      s.check_val_every_n_epoch > 1 ? fmt::format(" of every {}th epoch", s.check_val_every_n_epoch) : "";
  if (steps >= steps_per_epoch) return "at the end" + (epochs.empty() ? " of each epoch" : epochs);
  return fmt::format("every {} steps", steps) + epochs;
}

int64_t limited_steps(int64_t steps_per_epoch, const CountOrShare& limit, int64_t batches_per_step) {
  const int64_t batches = std::min(steps_per_epoch * batches_per_step, limit.of(steps_per_epoch * batches_per_step));
  return (batches + batches_per_step - 1) / batches_per_step;
}

}  // namespace redline::train
