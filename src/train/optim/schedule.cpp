// Formulas: NeMo nemo/core/optim/lr_scheduler.py (NoamAnnealing, CosineAnnealing, WarmupPolicy), ConvNeXt
// utils.cosine_scheduler, PyTorch torch/optim/lr_scheduler.py (OneCycleLR, ExponentialLR), mmcv
// runner/hooks/lr_updater.py (PolyLrUpdaterHook with linear warm-up).
#include "train/optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "core/error.h"
#include "core/strings.h"

namespace redline::train {

namespace {

struct ScheduleName {
  const char* name;
  ScheduleKind kind;
};
constexpr ScheduleName kScheduleNames[] = {
    {"constant", ScheduleKind::Constant},
    {"WarmupPolicy", ScheduleKind::Constant},
    {"fixed", ScheduleKind::Constant},
    {"NoamAnnealing", ScheduleKind::Noam},
    {"noam", ScheduleKind::Noam},
    {"CosineAnnealing", ScheduleKind::CosineAnnealing},
    {"cosine", ScheduleKind::Cosine},
    {"poly", ScheduleKind::Poly},
    {"OneCycleLR", ScheduleKind::OneCycle},
    {"onecycle", ScheduleKind::OneCycle},
    {"ExponentialLR", ScheduleKind::Exponential},
    {"exponential", ScheduleKind::Exponential},
    {"sweep", ScheduleKind::Sweep},
};

double ratio_of(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

double noam_lr(const Schedule& s, int64_t step) {
  const auto n = static_cast<double>(std::max<int64_t>(1, step));
  const double normalise = std::pow(static_cast<double>(s.d_model), -0.5);
  double factor = std::pow(n, -0.5);
  if (s.warmup_steps > 0) factor = std::min(factor, n * std::pow(static_cast<double>(s.warmup_steps), -1.5));
  const double lr = s.base_lr * normalise * factor;
  return n > static_cast<double>(s.warmup_steps) ? std::max(lr, s.min_lr) : lr;
}

double half_cosine(double from, double to, double share) {
  return to + (from - to) * 0.5 * (1.0 + std::cos(std::numbers::pi * share));
}

double cosine_annealing_lr(const Schedule& s, int64_t step) {
  const int64_t decay = s.max_steps - s.warmup_steps - s.constant_steps;
  if (s.constant_steps > 0) {  // Megatron's form
    if (s.warmup_steps > 0 && step <= s.warmup_steps) return s.base_lr * ratio_of(step, s.warmup_steps);
    if (step > s.warmup_steps + decay) return s.min_lr;
    return half_cosine(s.base_lr, s.min_lr, ratio_of(step - s.warmup_steps, decay));
  }
  if (s.warmup_steps > 0 && step <= s.warmup_steps) return s.base_lr * ratio_of(step + 1, s.warmup_steps + 1);
  if (step > s.max_steps) return s.min_lr;
  return half_cosine(s.base_lr, s.min_lr, ratio_of(step - s.warmup_steps, decay));
}

double cosine_table_lr(const Schedule& s, int64_t step) {
  if (step < s.warmup_steps) {
    if (s.warmup_steps == 1) return 0.0;  // linspace(0, lr, 1)
    return s.base_lr * ratio_of(step, s.warmup_steps - 1);
  }
  const int64_t length = s.max_steps - s.warmup_steps;
  const int64_t i = std::min(step - s.warmup_steps, length);  // beyond the table: its limit
  return half_cosine(s.base_lr, s.min_lr, ratio_of(i, length));
}

double poly_lr(const Schedule& s, int64_t step) {
  const int64_t iteration = (step + 1) * s.micro_per_step - 1;  // of the micro-iteration that makes the step
  const double rest = std::max(0.0, 1.0 - ratio_of(iteration, s.max_steps));
  const double regular = (s.base_lr - s.min_lr) * std::pow(rest, s.power) + s.min_lr;
  if (iteration >= s.warmup_steps) return regular;
  const double k = (1.0 - ratio_of(iteration, s.warmup_steps)) * (1.0 - s.warmup_start_factor);
  return regular * (1.0 - k);
}

// torch.optim.lr_scheduler.OneCycleLR, anneal_strategy cos, three_phase false.
double one_cycle_lr(const Schedule& s, int64_t step) {
  const double begin = s.base_lr / s.div_factor, end = begin / s.final_div_factor;
  const double peak = s.pct_start * static_cast<double>(s.max_steps) - 1.0,
               last = static_cast<double>(s.max_steps) - 1.0;
  const auto at = static_cast<double>(step);
  if (at <= peak) return half_cosine(begin, s.base_lr, peak > 0 ? at / peak : 1.0);
  return half_cosine(s.base_lr, end, last > peak ? std::min(1.0, (at - peak) / (last - peak)) : 1.0);
}

double exponential_lr(const Schedule& s, int64_t step) {
  if (s.warmup_steps > 0 && step <= s.warmup_steps) return s.base_lr * ratio_of(step + 1, s.warmup_steps + 1);
  const auto factors = static_cast<double>((step - s.warmup_steps) / s.decay_steps);
  return std::max(s.min_lr, s.base_lr * std::pow(s.gamma, factors));
}

double sweep_lr(const Schedule& s, int64_t step) {
  const double share = s.max_steps > 1 ? std::min(1.0, ratio_of(step, s.max_steps - 1)) : 1.0;
  return s.min_lr * std::pow(s.base_lr / s.min_lr, share);
}

double constant_lr(const Schedule& s, int64_t step) {
  if (s.warmup_steps > 0 && step <= s.warmup_steps) return s.base_lr * ratio_of(step + 1, s.warmup_steps + 1);
  return s.base_lr;
}

}  // namespace

double Schedule::at(int64_t step) const {
  REDLINE_CHECK(step >= 0, "steps count from 0");
  switch (kind) {
    case ScheduleKind::Constant:
      return constant_lr(*this, step);
    case ScheduleKind::Noam:
      return noam_lr(*this, step);
    case ScheduleKind::CosineAnnealing:
      return cosine_annealing_lr(*this, step);
    case ScheduleKind::Cosine:
      return cosine_table_lr(*this, step);
    case ScheduleKind::Poly:
      return poly_lr(*this, step);
    case ScheduleKind::OneCycle:
      return one_cycle_lr(*this, step);
    case ScheduleKind::Exponential:
      return exponential_lr(*this, step);
    case ScheduleKind::Sweep:
      return sweep_lr(*this, step);
  }
  return base_lr;
}

ScheduleKind parse_schedule_kind(const std::string& name) {
  for (const ScheduleName& known : kScheduleNames)
    if (name == known.name) return known.kind;
  const std::vector<std::string> names = schedule_names();
  throw ConfigError(fmt::format("model.optim.sched.name is '{}'; known schedules: {}.", name, join(names, ", ")));
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleName& known : kScheduleNames) names.emplace_back(known.name);
  return names;
}

double learning_rate_scale(const std::string& rule, double effective_batch, double base_batch) {
  REDLINE_CHECK(effective_batch > 0 && base_batch > 0, "batch sizes are positive");
  if (rule == "linear") return effective_batch / base_batch;
  if (rule == "sqrt") return std::sqrt(effective_batch / base_batch);
  REDLINE_CHECK(rule == "none", "scale_lr is linear, sqrt or none");
  return 1.0;
}

}  // namespace redline::train
