// When to log, validate, look and stop: pure decisions over counts. No clock, no thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace redline::train {

// A number of things, or a share of them: Lightning's int-or-float arguments (limit_val_batches, val_check_interval).
struct CountOrShare {
  std::optional<int64_t> count;  // absent: share
  double share = 1.0;
  // Of `total` things; shares round down but a positive share of something is at least 1. count is not clipped.
  int64_t of(int64_t total) const;
};
// "2500", "0.05", "1.0": a text with a dot or exponent is a share in [0, 1], else a count; throws ConfigError naming
// `field`.
CountOrShare parse_count_or_share(const std::string& text, const std::string& field);

struct CadenceSettings {
  int64_t log_every_n_steps = 50;
  CountOrShare val_check_interval;  // batches (before accumulation), or share of an epoch's
  // Validation only in every n-th epoch; 0: a count runs on across epochs (Lightning's null).
  int64_t check_val_every_n_epoch = 1;
  int64_t batches_per_step = 1;                             // accumulation
  int64_t monitor_every_steps = 0, plot_every_steps = 0;    // 0 = never
  int64_t monitor_every_epochs = 0, plot_every_epochs = 0;  // at the end of the epoch, after its validation
  int64_t max_steps = -1, max_epochs = -1;                  // -1 = no limit
  double max_seconds = 0;                                   // 0 = no limit
  bool validation = true;                                   // there is something to validate on
};

// After a step has been committed (or skipped).
struct CadencePosition {
  int64_t step = 0;             // steps of the run done, from 1
  int64_t epoch = 0;            // of that step
  int64_t step_in_epoch = 0;    // done in that epoch, from 1
  int64_t steps_per_epoch = 0;  // after limit_train_batches
};

struct CadenceDecision {
  bool log = false, validate = false, monitor = false, plot = false, epoch_end = false;
  bool epoch_monitor = false, epoch_plot = false;  // what counts epochs
};
// What a monitor that counts epochs does when `epochs` of them are done.
void decide_epoch_looks(const CadenceSettings& settings, int64_t epochs, CadenceDecision& decision);
CadenceDecision decide_cadence(const CadenceSettings& settings, const CadencePosition& position);

enum class StopReason { None, MaxSteps, MaxEpochs, MaxTime };
// Before a step: `step` and `epoch` are those about to be made, from 0.
StopReason decide_stop(const CadenceSettings& settings, int64_t step, int64_t epoch, double elapsed_seconds);
const char* stop_reason_text(StopReason reason);

// How often validation runs, over a long run.
double validations_per_step(const CadenceSettings& settings, int64_t steps_per_epoch);
// The same in words for the start lines: "every 250 steps", "at the end of each epoch".
std::string validation_words(const CadenceSettings& settings, int64_t steps_per_epoch);

// Steps of an epoch under limit_train_batches (batches before accumulation).
int64_t limited_steps(int64_t steps_per_epoch, const CountOrShare& limit, int64_t batches_per_step);

}  // namespace redline::train
