#include "train/options/optim_options.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "core/strings.h"

namespace redline::train {

namespace {

using config::Effect;
using config::Node;

Node lower_case(const Node& value) {
  Node result = Node::scalar(to_lower(value.text()));
  result.origin = value.origin;
  return result;
}

double number_in(const Node& map, const char* key, const std::string& path) {
  const Node* value = map.find(key);
  if (value == nullptr) return 1.0;
  const auto number = value->as_double();
  if (!number || *number < 0)
    throw ConfigError(fmt::format("{}: {}.{} must be a number of at least 0.", value->origin.text(), path, key));
  return *number;
}

void check_known_keys(const Node& map, const std::string& path) {
  for (const auto& [key, value] : map.entries())
    if (key != "lr_mult" && key != "decay_mult")
      throw ConfigError(
          fmt::format("{}: {} knows lr_mult and decay_mult, not '{}'.", value.origin.text(), path, printable(key)));
}

int64_t warmup_of(const SchedConfig& s, const RunLength& run, int64_t length) {
  if (s.warmup_steps) return *s.warmup_steps;
  if (s.warmup_epochs) return *s.warmup_epochs * run.steps_per_epoch;
  if (s.warmup_ratio && length > 0) return static_cast<int64_t>(*s.warmup_ratio * static_cast<double>(length));
  return 0;
}

void note_length(const Schedule& schedule, int64_t run_steps, std::vector<std::string>* notes) {
  if (notes == nullptr || run_steps <= 0) return;
  const int64_t length =
      schedule.kind == ScheduleKind::Poly ? schedule.max_steps / schedule.micro_per_step : schedule.max_steps;
  const bool anneals = schedule.kind != ScheduleKind::Constant && schedule.kind != ScheduleKind::Noam &&
                       schedule.kind != ScheduleKind::Exponential;
  if (anneals && length > run_steps)
    notes->push_back(
        fmt::format("The learning-rate schedule is {} steps long but the run ends after {}: it never reaches its end.",
                    length, run_steps));
  if (schedule.warmup_steps > (schedule.kind == ScheduleKind::Poly ? run_steps * schedule.micro_per_step : run_steps))
    notes->push_back(
        fmt::format("The warm-up of {} steps is longer than the run of {} steps: the full learning rate is never used.",
                    schedule.warmup_steps, run_steps));
}

}  // namespace

config::Table<SchedConfig> SchedConfig::fields() {
  using T = SchedConfig;
  config::Table<T> table;
  table.about("How the learning rate moves.").shorthand("name");
  table
      .add("name", &T::name,
           "NoamAnnealing, CosineAnnealing (NeMo's), cosine (ConvNeXt's table), poly (mmcv's), OneCycleLR, "
           "ExponentialLR "
           "(PyTorch's), sweep (from min_lr up to lr by equal factors, for `redline lr`), constant.")
      .choices(schedule_names())
      .effect(Effect::Optimisation)
      .alias(".lr_config.policy");
  table.add("d_model", &T::d_model, "Noam: the rate is lr d_model^-0.5 min(s^-0.5, s warmup^-1.5).").at_least(1);
  table.add("warmup_steps", &T::warmup_steps, "Linear warm-up, in optimiser steps (poly: micro-iterations).")
      .counts(config::Counts::Steps)
      .at_least(0)
      .alias(".lr_config.warmup_iters", {}, "micro-iterations");
  table.add("warmup_ratio", &T::warmup_ratio, "The same as a share of the run.").range(0, 1);
  table.add("warmup_epochs", &T::warmup_epochs, "The same in epochs.")
      .counts(config::Counts::Epochs)
      .at_least(0)
      .alias(".warmup_epochs");
  table.add("max_steps", &T::max_steps, "Length of the schedule; null: the run's.")
      .counts(config::Counts::Steps)
      .at_least(1);
  table.add("constant_steps", &T::constant_steps, "CosineAnnealing: steps at min_lr at the end.")
      .counts(config::Counts::Steps)
      .at_least(0);
  table.add("constant_ratio", &T::constant_ratio, "The same as a share of the run.").range(0, 1);
  table.add("min_lr", &T::min_lr, "Where annealing ends.").at_least(0).alias(".lr_config.min_lr");
  table.add("power", &T::power, "poly: (1 - it/max)^power.").at_least(0).alias(".lr_config.power");
  table.add("warmup_start_factor", &T::warmup_start_factor, "poly: share of the rate at which the warm-up begins.")
      .range(0, 1)
      .alias(".lr_config.warmup_ratio", {}, "mmcv's warmup_ratio is this, not NeMo's share of the run");
  table.add("gamma", &T::gamma, "ExponentialLR: the rate is multiplied by this every decay_steps.").above(0).at_most(1);
  table.add("decay_steps", &T::decay_steps, "ExponentialLR: steps between two factors; null: an epoch.")
      .counts(config::Counts::Steps)
      .at_least(1);
  table.add("pct_start", &T::pct_start, "OneCycleLR: share of the run in which the rate rises.").above(0).below(1);
  table.add("div_factor", &T::div_factor, "OneCycleLR: it begins at lr over this.").at_least(1);
  table.add("final_div_factor", &T::final_div_factor, "OneCycleLR: it ends at its begin over this.").at_least(1);
  table.accept("last_epoch", {"-1", "null"}, "resume restores the step");
  table.accept("monitor", {}, "no schedule here follows a metric");
  table.accept("reduce_on_plateau", {"false"}, "no schedule here follows a metric");
  return table;
}

config::Table<OptimConfig> OptimConfig::fields() {
  using T = OptimConfig;
  config::Table<T> table;
  table.about("The optimiser, on LibTorch's fused kernels.");
  table
      .add("name", &T::name,
           "adamw, adam, sgd, lion (its paper: betas 0.9 and 0.99, a tenth of AdamW's rate) or adafactor.")
      .choices({"adamw", "adam", "sgd", "lion", "adafactor"})
      .effect(Effect::Optimisation)
      .alias(".optimizer.type", lower_case);
  table.add("lr", &T::lr, "Learning rate (for Noam: a multiplier).")
      .at_least(0)
      .effect(Effect::Optimisation)
      .alias(".optimizer.lr")
      .flag("lr")
      .alias(".learning_rate");
  table.add("betas", &T::betas, "Adam's decay rates of the two moments.").alias(".optimizer.betas");
  table.add("eps", &T::eps, "Adam's epsilon.").above(0).alias(".optimizer.eps");
  table.add("weight_decay", &T::weight_decay, "Decoupled for adamw, added to the gradient for adam and sgd.")
      .at_least(0)
      .effect(Effect::Optimisation)
      .alias(".optimizer.weight_decay")
      .flag("weight_decay");
  table.add("weight_decay_end", &T::weight_decay_end, "Cosine from weight_decay to this over the run; null: constant.")
      .at_least(0);
  table.add("amsgrad", &T::amsgrad, "Adam with the maximum of past second moments.").alias(".optimizer.amsgrad");
  table.add("momentum", &T::momentum, "SGD's momentum.").at_least(0).below(1).alias(".optimizer.momentum");
  table.add("dampening", &T::dampening, "SGD's dampening of the momentum.").at_least(0).alias(".optimizer.dampening");
  table.add("nesterov", &T::nesterov, "SGD with Nesterov's momentum.").alias(".optimizer.nesterov");
  table.add("maximize", &T::maximize, "Climb instead of descend.");
  table
      .add("no_decay", &T::no_decay,
           "No weight decay for: 1d (tensors of at most one dimension), bias, or names that contain a word; none: all "
           "decay.")
      .effect(Effect::Optimisation);
  table.add("custom_keys", &T::custom_keys, "Name part: {lr_mult, decay_mult}; the longest part that fits applies.")
      .effect(Effect::Optimisation)
      .alias(".optimizer.paramwise_cfg.custom_keys");
  table
      .add("scale_lr", &T::scale_lr,
           "The rate at the same samples grows with the effective batch over base_batch_size, or with its root. Noam, "
           "which falls "
           "with the root of the steps, holds the root already.")
      .choices({"none", "linear", "sqrt"})
      .effect(Effect::Optimisation);
  table.add("base_batch_size", &T::base_batch_size, "The effective batch that lr was chosen for.")
      .above(0)
      .alias(".auto_scale_lr.base_batch_size");
  table.group("sched", &T::sched, "How the learning rate moves; absent: constant.");
  table.accept("fused", {"true", "null"}, "kernels are always fused");
  table.accept("foreach", {"true", "false", "null"}, "kernels are always fused");
  table.accept("capturable", {"false"}, "");
  table.accept("differentiable", {"false"}, "");
  return table;
}

void OptimConfig::check() const {
  if (betas.size() != 2 || !(betas[0] >= 0 && betas[0] < 1 && betas[1] >= 0 && betas[1] < 1))
    throw ConfigError("model.optim.betas must be two numbers in [0, 1).");
  if (nesterov && (momentum <= 0 || dampening != 0))
    throw ConfigError("model.optim.nesterov needs a momentum above 0 and no dampening.");
  if (scale_lr != "none" && !base_batch_size)
    throw ConfigError(fmt::format(
        "model.optim.scale_lr is {}: give base_batch_size, the effective batch that lr was chosen for.", scale_lr));
  if (sched) {
    if (sched->warmup_steps && sched->warmup_ratio)
      throw ConfigError("model.optim.sched: give warmup_steps or warmup_ratio, not both.");
    if (sched->constant_steps && sched->constant_ratio)
      throw ConfigError("model.optim.sched: give constant_steps or constant_ratio, not both.");
  }
  rules();
}

ParameterRules OptimConfig::rules() const {
  ParameterRules result{weight_decay, no_decay, {}};
  if (no_decay == std::vector<std::string>{"none"}) result.no_decay.clear();
  if (custom_keys.is_null()) return result;
  if (!custom_keys.is_map())
    throw ConfigError("model.optim.custom_keys must map parts of names to {lr_mult, decay_mult}.");
  for (const auto& [key, value] : custom_keys.entries()) {
    const std::string path = fmt::format("model.optim.custom_keys.{}", printable(key));
    if (!value.is_map())
      throw ConfigError(fmt::format("{}: {} must be a map of lr_mult and decay_mult.", value.origin.text(), path));
    check_known_keys(value, path);
    result.custom_keys.push_back({key, number_in(value, "lr_mult", path), number_in(value, "decay_mult", path)});
  }
  return result;
}

bool counts_micro_iterations(const SchedConfig& sched) { return parse_schedule_kind(sched.name) == ScheduleKind::Poly; }

Schedule make_schedule(const OptimConfig& config, const RunLength& run, std::vector<std::string>* notes) {
  Schedule s;
  s.base_lr = config.lr;
  if (config.sched) s.kind = parse_schedule_kind(config.sched->name);
  if (config.scale_lr != "none") {
    s.base_lr *= learning_rate_scale(config.scale_lr, run.effective_batch, *config.base_batch_size);
    // Fewer steps for the same samples are a larger rate already.
    if (s.kind == ScheduleKind::Noam) s.base_lr /= std::sqrt(run.effective_batch / *config.base_batch_size);
  }
  if (!config.sched) return s;
  const SchedConfig& sched = *config.sched;
  s.min_lr = sched.min_lr;
  s.power = sched.power;
  s.warmup_start_factor = sched.warmup_start_factor;
  if (s.kind == ScheduleKind::Poly) s.micro_per_step = run.micro_per_step;
  const int64_t run_length = run.max_steps > 0 ? run.max_steps * s.micro_per_step : 0;
  s.max_steps = sched.max_steps.value_or(run_length);
  s.warmup_steps = warmup_of(sched, run, s.max_steps);
  s.constant_steps = sched.constant_steps.value_or(
      sched.constant_ratio ? static_cast<int64_t>(*sched.constant_ratio * static_cast<double>(s.max_steps)) : 0);
  s.gamma = sched.gamma;
  s.decay_steps = sched.decay_steps.value_or(std::max<int64_t>(1, run.steps_per_epoch));
  s.pct_start = sched.pct_start;
  s.div_factor = sched.div_factor;
  s.final_div_factor = sched.final_div_factor;
  if (s.kind == ScheduleKind::Sweep && !(s.min_lr > 0 && s.base_lr > s.min_lr))
    throw ConfigError("model.optim.sched: sweep rises from min_lr to lr; give a min_lr above 0 and below lr.");
  if (s.kind == ScheduleKind::Noam) {
    if (!sched.d_model) throw ConfigError("model.optim.sched: NoamAnnealing needs d_model.");
    s.d_model = *sched.d_model;
  }
  if (s.kind != ScheduleKind::Constant && s.base_lr < s.min_lr)
    throw ConfigError(fmt::format("model.optim.lr {} is lower than sched.min_lr {}.", format_double(s.base_lr),
                                  format_double(s.min_lr)));
  const bool needs_length =
      s.kind != ScheduleKind::Constant && s.kind != ScheduleKind::Noam && s.kind != ScheduleKind::Exponential;
  if (needs_length && s.max_steps <= 0)
    throw ConfigError(fmt::format(
        "model.optim.sched: {} needs a length; give trainer.max_steps, trainer.max_epochs or sched.max_steps.",
        sched.name));
  // A run cut short (max_steps=20) may end inside its warm-up, which note_length says; a written length must hold its
  // parts.
  if (needs_length && s.kind != ScheduleKind::Poly && sched.max_steps &&
      s.warmup_steps + s.constant_steps >= s.max_steps)
    throw ConfigError(
        fmt::format("model.optim.sched: warm-up ({}) and constant end ({}) leave nothing of the {} steps to anneal.",
                    s.warmup_steps, s.constant_steps, s.max_steps));
  note_length(s, run.max_steps, notes);
  return s;
}

}  // namespace redline::train
