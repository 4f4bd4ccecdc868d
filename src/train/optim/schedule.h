// Learning rates as pure functions of the step: no state to save, so resume and replay need only a number.
//
// `step` is how many optimiser steps were made before this one (PyTorch's last_epoch when a scheduler is stepped after
// each optimiser step). Steps skipped by a loss scaler count too, as in Lightning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace redline::train {

enum class ScheduleKind {
  Constant,         // base_lr, after a linear warm-up when one is given (NeMo WarmupPolicy)
  Noam,             // NeMo NoamAnnealing: base_lr is a multiplier of d_model^-0.5 min(s^-0.5, s warmup^-1.5)
  CosineAnnealing,  // NeMo CosineAnnealing
  Cosine,       // ConvNeXt's table: linspace(0, lr, warmup) with both ends, then half a cosine that never quite ends
  Poly,         // mmcv: poly with linear warm-up, counted in micro-iterations
  OneCycle,     // PyTorch OneCycleLR in two phases of half a cosine: lr / div_factor up to lr, then far down
  Exponential,  // PyTorch ExponentialLR: times gamma every decay_steps, after a linear warm-up when one is given
  Sweep,        // from min_lr to base_lr by equal factors: a learning-rate range test
};

struct Schedule {
  ScheduleKind kind = ScheduleKind::Constant;
  double base_lr = 1e-3, min_lr = 0.0;
  int64_t warmup_steps = 0;
  int64_t max_steps = 0;                          // length of the schedule; 0 = unknown (Constant and Noam only)
  int64_t constant_steps = 0;                     // CosineAnnealing: at min_lr at the end
  int64_t d_model = 1;                            // Noam
  double power = 1.0, warmup_start_factor = 0.1;  // Poly
  int64_t micro_per_step = 1;                     // Poly: warmup_steps and max_steps count micro-iterations

  double gamma = 1.0;                                                 // Exponential
  int64_t decay_steps = 1;                                            // Exponential
  double pct_start = 0.3, div_factor = 25.0, final_div_factor = 1e4;  // OneCycle

  double at(int64_t step) const;
};

// Accepts NeMo's, mmcv's and plain names ("NoamAnnealing", "poly", "cosine", ...); throws ConfigError listing the known
// ones.
ScheduleKind parse_schedule_kind(const std::string& name);
std::vector<std::string> schedule_names();

// linear: k = effective / base; sqrt: its root; none: 1.
double learning_rate_scale(const std::string& rule, double effective_batch, double base_batch);

}  // namespace redline::train
